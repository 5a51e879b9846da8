"""Runs the jobs of a study on a Ray cluster whose machines all see its folder under the same path."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.study.folder import StudyFolder
from probescale.study.scheduling import Outcome
from probescale.study.worker import run_to_exit_code

TIMEOUT = 1.0  # seconds to wait for a job to end


class RayEngine:
    """Each job is a Ray task with its own resources and its own worker process."""

    def __init__(self, folder: StudyFolder, address: str | None, cpus: int, gpus: float) -> None:
        self.ray, self.folder = _ray(), folder
        connection: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
        self.ray.init(log_to_driver=False, logging_level="ERROR", **connection)
        total = self.ray.cluster_resources()
        self.slots = max(int(total.get("CPU", 1) // cpus), 1)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0, "max_calls": 1}
        self.task = self.ray.remote(**options)(_job)
        self.study_path, self.cpus = str(folder.path.resolve()), cpus
        self.running: dict[Any, str] = {}

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def start(self, job: str) -> None:
        """Submit the job."""
        self.running[self.task.remote(self.study_path, job, str(Path.cwd()), self.cpus)] = job

    def poll(self) -> list[tuple[str, Outcome]]:
        """Wait a little; the jobs that have ended since, with their outcomes."""
        ended, _ = self.ray.wait(list(self.running), timeout=TIMEOUT)
        return [(self.running.pop(task), self._outcome(task)) for task in ended]

    def _outcome(self, task: Any) -> Outcome:  # noqa: ANN401 - Ray's reference
        try:
            return "done" if self.ray.get(task) == 0 else "failed"
        except (self.ray.exceptions.WorkerCrashedError, self.ray.exceptions.NodeDiedError):
            return "died"


def _job(study_path: str, job: str, directory: str, cpus: int) -> int:
    """Run a job in a worker, in the directory where the study was started."""
    import torch

    folder = StudyFolder(Path(study_path))
    os.chdir(directory)
    torch.set_num_threads(cpus)
    with folder.log(job).open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        return run_to_exit_code(folder, job)


def _ray() -> Any:  # noqa: ANN401 - an optional module
    """The module ray, or an error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed", field="study.engine", hint='pip install "probescale[ray]", or use engine: local'
        ) from error
    return ray
