"""Jobs as processes on this machine: a crash costs one of them."""

from __future__ import annotations

import os
import subprocess
import time

from probescale.study.folder import StudyFolder
from probescale.study.scheduling import Outcome
from probescale.utils.subprocesses import module_command

PAUSE = 0.2  # seconds between two looks
PATIENCE = 5.0  # seconds for a process to tidy up when it is stopped


class LocalEngine:
    def __init__(self, folder: StudyFolder, workers: int, cpus: int | None) -> None:
        self.folder, self.slots = folder, workers
        self.threads = cpus or max((os.cpu_count() or 1) // workers, 1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever still runs is stopped; it goes on from there the next time."""
        for process in self.processes.values():
            process.terminate()
        last = time.monotonic() + PATIENCE
        for process in self.processes.values():
            try:
                process.wait(max(last - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, job: str) -> None:
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        with self.folder.log(job).open("ab") as file:
            self.processes[job] = subprocess.Popen(
                module_command("probescale.study.worker", str(self.folder.path), job),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | threads,
            )

    def poll(self) -> list[tuple[str, Outcome]]:
        time.sleep(PAUSE)
        ended = {job: process.returncode for job, process in self.processes.items() if process.poll() is not None}
        for job in ended:
            del self.processes[job]
        return [(job, _outcome(code)) for job, code in ended.items()]


def _outcome(code: int) -> Outcome:
    """Below 0, or beyond 128: a signal ended it."""
    return "done" if code == 0 else "failed" if 0 < code <= 128 else "died"
