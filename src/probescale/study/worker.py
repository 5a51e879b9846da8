"""One job of a study in a process of its own: python -m probescale.study.worker FOLDER JOB."""

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


def work(folder: StudyFolder, job: str) -> None:
    """Lay a ground, or run a cell. One process at a time: what another one has done meanwhile is not done again."""
    from probescale.pipeline.run import lay_ground, run

    study, command = folder.study()
    sys.argv = shlex.split(command)  # what results record as the command is the study's
    lock = folder.path / "locks" / f"{job}.lock"
    lock.parent.mkdir(exist_ok=True)
    with FileLock(lock):
        if folder.is_done(job):
            return
        if job in study.grounds:
            lay_ground([cell.config for cell in study.grounds[job]], folder.ground(job))
            return
        cell = next(cell for cell in study.cells if cell.name == job)
        run(cell.config, folder.cell(job), ground=folder.ground(cell.ground))


def attempt(folder: StudyFolder, job: str) -> int:
    """The exit code: 0; 2 for bad input, 1 for anything else. What went wrong is kept beside the cells."""
    try:
        work(folder, job)
    except UserError as wrong:
        folder.fail(job, str(wrong))
        return 2
    except Exception as error:
        short = find_shortage(error)
        folder.fail(job, redact_secrets(str(short) if short else traceback.format_exc()))
        return 1
    return 0


if __name__ == "__main__":
    try:
        with stop_on_signals():
            code = attempt(StudyFolder(Path(sys.argv[1])), sys.argv[2])
    except Stopped as stop:
        code = stop.code
    sys.exit(code)
