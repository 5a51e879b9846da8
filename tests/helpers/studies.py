"""A small study on a tiny model, and workers that start fast."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from probescale.study import local_engine, worker
from probescale.study.folder import StudyFolder


def settings(model_folder, task_files, **study) -> dict[str, Any]:
    """The settings of a study of two cells; `study` overrides its section."""
    what = {"strategies": ["stitched", "top_k"], "budgets": ["k=2"], "seeds": [0], "workers": 2}
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},
        "recovery": {"epochs": 3, "learning_rate": 3e-3, "batch_size": 16},
        "study": {**what, **study},
    }


class ForkedWorker:
    """A study's worker in a fork of this process, with the methods of Popen that the local engine uses."""

    def __init__(self, words: list[str], *, stdout: IO[bytes], env: dict[str, str], **_: object) -> None:
        self.returncode: int | None = None
        if pid := os.fork():
            self.pid = pid
            return
        code = 1
        try:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            os.environ.update(env)
            folder, job = words[-2:]
            code = worker.run_to_exit_code(StudyFolder(Path(folder)), job)
        except BaseException:  # a forked test must not continue as one
            traceback.print_exc()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(0.05)
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Run the jobs of local studies in forks of this process: a fresh one spends seconds on imports."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in = SimpleNamespace(**vars(subprocess) | {"Popen": ForkedWorker})
        patch.setattr(local_engine, "subprocess", stand_in)  # the module itself would be replaced for everyone
        yield
