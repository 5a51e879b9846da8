"""Runs one job of a study in its own process: python -m probescale.study.worker FOLDER JOB."""

from __future__ import annotations

import shlex
import sys
import traceback
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError
from probescale.study.folder import StudyFolder
from probescale.utils.resources import find_shortage
from probescale.utils.sanitize import redact_secrets
from probescale.utils.signals import Stopped, stop_on_signals


def run_job(folder: StudyFolder, job: str) -> None:
    """Do a shared preparation or a cell, unless another process has done it meanwhile (a lock keeps it to one)."""
    from probescale.pipeline.run import prepare_shared, run

    study, command = folder.study()
    sys.argv = shlex.split(command)  # results record the command of the study
    lock = folder.path / "locks" / f"{job}.lock"
    lock.parent.mkdir(exist_ok=True)
    with FileLock(lock):
        if folder.is_done(job):
            return
        if job in study.preparations:
            prepare_shared([cell.config for cell in study.preparations[job]], folder.preparation(job))
            return
        cell = next(cell for cell in study.cells if cell.name == job)
        path = folder.cell(job)  # if it exists, its metrics.json was damaged, and removed
        run(cell.config, path, overwrite=path.exists(), shared=folder.preparation(cell.preparation))


def run_to_exit_code(folder: StudyFolder, job: str) -> int:
    """Run a job; the exit code is 0, 2 for a user error, or 1 for any other. Failures are recorded in the folder."""
    try:
        run_job(folder, job)
    except UserError as error:
        folder.record_failure(job, str(error))
        return 2
    except Exception as error:
        short = find_shortage(error)
        folder.record_failure(job, redact_secrets(str(short) if short else traceback.format_exc()))
        return 1
    return 0


if __name__ == "__main__":
    try:
        with stop_on_signals():
            code = run_to_exit_code(StudyFolder(Path(sys.argv[1])), sys.argv[2])
    except Stopped as stop:
        code = stop.code
    sys.exit(code)
