"""Jobs on a Ray cluster. All machines see the study's folder under the same path."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.study.folder import StudyFolder
from probescale.study.scheduling import Outcome
from probescale.study.worker import run_to_exit_code

PAUSE = 1.0  # seconds to wait for something to end


class RayEngine:
    """A job is a task with its resources, in a worker process of its own; if that dies, the job is begun again."""

    def __init__(self, folder: StudyFolder, address: str | None, cpus: int, gpus: float) -> None:
        self.ray, self.folder = _ray(), folder
        own: dict[str, Any] = {"include_dashboard": False} if address is None else {"address": address}
        self.ray.init(log_to_driver=False, logging_level="ERROR", **own)
        total = self.ray.cluster_resources()
        self.slots = max(int(total.get("CPU", 1) // cpus), 1)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0, "max_calls": 1}
        self.task = self.ray.remote(**options)(_job)
        self.place, self.cpus = str(folder.path.resolve()), cpus
        self.running: dict[Any, str] = {}

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def start(self, job: str) -> None:
        self.running[self.task.remote(self.place, job, str(Path.cwd()), self.cpus)] = job

    def poll(self) -> list[tuple[str, Outcome]]:
        ended, _ = self.ray.wait(list(self.running), timeout=PAUSE)
        return [(self.running.pop(one), self._outcome(one)) for one in ended]

    def _outcome(self, one: Any) -> Outcome:  # noqa: ANN401 - Ray's reference
        try:
            return "done" if self.ray.get(one) == 0 else "failed"
        except (self.ray.exceptions.WorkerCrashedError, self.ray.exceptions.NodeDiedError):
            return "died"


def _job(place: str, job: str, here: str, cpus: int) -> int:
    """In the worker: the same work as on one machine, in the folder where the study was started."""
    import torch

    folder = StudyFolder(Path(place))
    os.chdir(here)
    torch.set_num_threads(cpus)
    with folder.log(job).open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        return run_to_exit_code(folder, job)


def _ray() -> Any:  # noqa: ANN401 - a module that may not be there
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed", field="study.engine", hint='pip install "probescale[ray]", or use engine: local'
        ) from error
    return ray
