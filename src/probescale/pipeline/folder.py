"""The folder of a run: work is kept in OUT.partial until it is complete, and resumed there after an interruption."""

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

INNER = ".work"  # what only a resumed run needs; removed when the run is complete
EVALUATED = "evaluated"  # within it: every model that was trained and evaluated
MARK = f"{INNER}/identity.json"


def check_run_folder(out: Path | str, *, overwrite: bool) -> Path:
    """The folder as a path, or an error if something that is not a run stands there."""
    cut_off = (Path(out) / MARK).is_file()
    markers = ["config.yaml", "selection.json", "metrics.json"]
    out = check_output_folder(Path(out), overwrite=overwrite or cut_off, markers=markers)
    check_output_folder(_partial(out), overwrite=True, markers=[MARK])
    return out


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


@contextmanager
def work_folder(out: Path, config: RunConfig, provenance: dict[str, Any], **extra: object) -> Iterator[Path]:
    """`out.partial`, with what an interrupted run of the same work left there; renamed to `out` when it is complete.

    `extra`: what else, besides configuration and provenance, tells one piece of work from another.
    """
    with _locked(out):
        yield from _partial_folder(out, config, provenance, **extra)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Allow one process at a time. A killed process leaves no lock behind."""
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


def _partial_folder(out: Path, config: RunConfig, provenance: dict[str, Any], **extra: object) -> Iterator[Path]:
    work = _partial(out)
    if (out / MARK).is_file() and not work.exists():
        out.rename(work)  # it was killed in its very last step
    _remove_leftovers(out, work)
    same_work = {**provenance, "command": None, "config": config.model_dump(mode="json"), **extra}
    identity = json.dumps(same_work, sort_keys=True)
    mark = work / MARK
    if mark.is_file() and mark.read_text(encoding="utf-8") == identity:
        console.print(f"resuming the interrupted run in {work}")
    else:
        with atomic_folder(work) as new:
            write_text(new / MARK, identity)
            write_text(new / "config.yaml", to_yaml(config))
    try:
        yield work
    except ProofFailed:
        raise  # the settings are fine: what was trained is kept
    except UserError:
        remove_folder(work)  # nothing here is worth resuming
        raise
    replace_folder(work, out)
    remove_folder(out / INNER, beside=out)


def _remove_leftovers(out: Path, work: Path) -> None:
    """Remove temporary files of killed processes; the lock makes sure that no other process works here."""
    remove_leftovers(out)
    remove_leftovers(work)
    for path in work.rglob(".*.tmp"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
