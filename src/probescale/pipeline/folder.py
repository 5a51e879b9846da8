"""The folder of a run: work stands beside it until it is complete, and goes on there after an interruption."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from probescale.config import RunConfig
from probescale.errors import ProofFailed, UserError
from probescale.utils.cache import try_lock
from probescale.utils.files import (
    atomic_folder,
    check_output_folder,
    remove_folder,
    remove_leftovers,
    replace_folder,
    write_text,
)
from probescale.utils.progress import console
from probescale.utils.yaml_files import to_yaml

INNER = ".work"  # within the run's folder while the run lasts: what a resumed run goes on with
MARK = f"{INNER}/identity.json"


def check_run_folder(out: Path | str, *, overwrite: bool) -> Path:
    cut_off = (Path(out) / MARK).is_file()
    markers = ["config.yaml", "selection.json", "metrics.json"]
    out = check_output_folder(Path(out), overwrite=overwrite or cut_off, markers=markers)
    check_output_folder(_partial(out), overwrite=True, markers=[MARK])
    return out


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


@contextmanager
def work_folder(out: Path, config: RunConfig, made: dict[str, Any], **asked: object) -> Iterator[Path]:
    """`out.partial`, with what an interrupted run of exactly this work left there; it becomes `out` at the end."""
    with _alone(out):
        yield from _filled(out, config, made, **asked)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One process at a time. The lock of a process that was killed is free."""
    path = out.with_name(f".{out.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    if not try_lock(lock):
        raise UserError(
            f"another process is working on {out}", field="--out", hint="wait for it, or give another folder"
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _filled(out: Path, config: RunConfig, made: dict[str, Any], **asked: object) -> Iterator[Path]:
    work = _partial(out)
    if (out / MARK).is_file() and not work.exists():
        out.rename(work)  # it was cut off in its very last step
    _sweep_all(out, work)
    identity = json.dumps({**made, "command": None, "config": config.model_dump(mode="json"), **asked}, sort_keys=True)
    mark = work / MARK
    if mark.is_file() and mark.read_text(encoding="utf-8") == identity:
        console.print(f"going on with the interrupted run in {work}")
    else:
        with atomic_folder(work) as new:
            write_text(new / MARK, identity)
            write_text(new / "config.yaml", to_yaml(config))
    try:
        yield work
    except ProofFailed:
        raise  # not the settings are wrong: what was trained stays
    except UserError:
        remove_folder(work)  # nothing here is worth going on with
        raise
    replace_folder(work, out)
    remove_folder(out / INNER, beside=out)


def _sweep_all(out: Path, work: Path) -> None:
    """No other process works here: what has a temporary name was left by one that was killed."""
    remove_leftovers(out)
    remove_leftovers(work)
    for path in work.rglob(".*.tmp"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
