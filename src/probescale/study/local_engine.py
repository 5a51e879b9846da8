"""Runs the jobs of a study as processes on this machine, so that a crash ends one job only."""

from __future__ import annotations

import os
import subprocess
import time

from probescale.study.folder import StudyFolder
from probescale.study.scheduling import Outcome
from probescale.utils.subprocesses import module_command

PAUSE = 0.2  # seconds between polls
GRACE = 5.0  # seconds for a stopped process to clean up


class LocalEngine:
    """Up to `workers` processes at a time, which share the cores."""

    def __init__(self, folder: StudyFolder, workers: int, cpus: int | None) -> None:
        self.folder, self.slots = folder, workers
        self.threads = cpus or max((os.cpu_count() or 1) // workers, 1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what still runs; partial work is kept, and the next start resumes it."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self.processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, job: str) -> None:
        """Start a process for the job; it writes to the job's log."""
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
        """Wait a little; the jobs that have ended since, with their outcomes."""
        time.sleep(PAUSE)
        ended = {job: process.returncode for job, process in self.processes.items() if process.poll() is not None}
        for job in ended:
            del self.processes[job]
        return [(job, _outcome(code)) for job, code in ended.items()]


def _outcome(code: int) -> Outcome:
    """Exit codes below 0 or above 128 mean that a signal ended the process."""
    return "done" if code == 0 else "failed" if 0 < code <= 128 else "died"
