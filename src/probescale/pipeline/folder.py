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
from probescale.pipeline.identity import describe_work, explain_differences, list_renamed
from probescale.pipeline.seals import INNER, find_others, list_own, mend, sealed
from probescale.utils.cache import try_lock
from probescale.utils.files import (
    atomic_folder,
    is_temporary,
    remove_folder,
    remove_leftovers,
    replace_folder,
    write_text,
)
from probescale.utils.outputs import Inputs, check_output_folder, refuse_inputs_inside
from probescale.utils.ownership import name_strangers, write_manifest
from probescale.utils.progress import console
from probescale.utils.yaml_files import to_yaml

EVALUATED = "evaluated"  # within INNER: every model that was trained and evaluated
MARK = f"{INNER}/identity.json"
KIND = "run"
SETTINGS = {*RunConfig.model_fields, "--keep"}


def check_run_folder(out: Path | str, inputs: Inputs, *, overwrite: bool) -> Path:
    """The folder as a path, or an error if something that is not a run stands there, or what the run reads."""
    out = Path(out)
    if (out / MARK).is_file():  # it was killed in its very last step
        refuse_inputs_inside(out.resolve(), inputs)
        return out.resolve()
    out = check_output_folder(out, kind=KIND, inputs=inputs, overwrite=overwrite)
    work = _partial(out)
    refuse_inputs_inside(work, inputs)
    if work.exists() and any(work.iterdir()) and not (work / MARK).is_file():
        raise UserError(
            f'"{work}" would hold the work until it is complete, but it is not the folder of a run, and is left alone',
            field="--out",
            hint="choose another folder, or move that one",
        )
    return out


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


@contextmanager
def work_folder(
    out: Path, config: RunConfig, provenance: dict[str, Any], *, overwrite: bool, **extra: object
) -> Iterator[Path]:
    """`out.partial`, with what an interrupted run of the same work left there; renamed to `out` when it is complete.

    `extra`: what else, besides configuration and provenance, tells one piece of work from another. Unfinished work of
    another kind is refused, or with `overwrite` removed.
    """
    with _locked(out):
        work = _partial(out)
        if (out / MARK).is_file() and not work.exists():
            out.rename(work)  # it was killed in its very last step
        _remove_leftovers(out, work)
        _open(work, describe_work(config, provenance, extra), overwrite=overwrite)
        with sealed(work):
            if not (work / "config.yaml").is_file():
                write_text(work / "config.yaml", to_yaml(config))
            yield from _keep_unless_refused(work)
        _finish(work, out)


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


def _open(work: Path, identity: dict[str, Any], *, overwrite: bool) -> None:
    """Resume the work of this folder if it is the same, else begin anew where that removes nothing of worth."""
    if (work / MARK).is_file():
        mend(work)
        try:
            before = json.loads((work / MARK).read_text(encoding="utf-8"))
            problem = explain_differences(before, identity)
        except (ValueError, KeyError, TypeError, AttributeError):
            before, problem = identity, f"{MARK} is damaged, so nobody can tell what it belongs to"
        if not problem:
            for line in list_renamed(before, identity):
                console.print(line, soft_wrap=True)
            console.print(f"resuming the interrupted run in {work}")
            return
        if not overwrite:
            raise UserError(
                f'"{work}" holds unfinished work with other settings: {problem}',
                field="--out",
                hint="give the same settings to resume it, choose another folder, or add --overwrite to remove it",
            )
        name_strangers(work, find_others(work))
        remove_folder(work)
    with atomic_folder(work) as new, sealed(new):
        write_text(new / MARK, json.dumps(identity, indent=1, sort_keys=True))


def _keep_unless_refused(work: Path) -> Iterator[Path]:
    """The work folder, which stays behind after an error, unless nothing in it is worth resuming."""
    try:
        yield work
    except ProofFailed:
        raise  # the settings are fine: what was trained is kept
    except UserError as error:
        hopeless = error.field.split(".")[0] in SETTINGS  # the same command would end here again
        if (hopeless or not (work / "scores.json").exists()) and not find_others(work):
            remove_folder(work)
        raise


def _finish(work: Path, out: Path) -> None:
    """Give the complete work its final name, and remove what only a resumed run needs."""
    own = [name for name in list_own(work) if not name.startswith(f"{INNER}/") and (work / name).is_file()]
    others = [path for path in find_others(work) if path.is_relative_to(work / INNER)]
    write_manifest(work, KIND, files=own)
    replace_folder(work, out, KIND)
    remove_folder(out / INNER, beside=out, keep=[out / path.relative_to(work) for path in others])


def _remove_leftovers(out: Path, work: Path) -> None:
    """Remove temporary files of killed processes; the lock makes sure that no other process works here."""
    remove_leftovers(out)
    remove_leftovers(work)
    for path in [path for path in work.rglob(".*.tmp") if is_temporary(path.name)]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
