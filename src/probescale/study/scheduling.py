"""Decides which job of a study runs next; an engine decides where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Outcome = Literal["done", "failed", "died"]  # died: its process was killed, so it may run again


class Engine(Protocol):
    """Where jobs run."""

    slots: int  # jobs at a time

    def start(self, job: str) -> None:
        """Start a job without waiting for it."""
        ...

    def poll(self) -> list[tuple[str, Outcome]]:
        """Wait a little; the jobs that have ended since the last call, with their outcomes."""
        ...


@dataclass
class Progress:
    """Jobs by their state."""

    waiting: list[str]
    running: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def run_jobs(
    jobs: Mapping[str, str | None],  # each job with the job it waits for
    engine: Engine,
    retries: int,
    *,
    done: list[str],
    report: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Run all jobs that are not done. If a job fails, those that wait for it fail as well."""
    progress = Progress(waiting=[job for job in jobs if job not in done], done=list(done))
    starts = dict.fromkeys(jobs, 0)
    while progress.waiting or progress.running:
        for job in [job for job in progress.waiting if jobs[job] in progress.failed]:
            progress.waiting.remove(job)
            progress.failed.append(job)
        for job in [job for job in progress.waiting if jobs[job] is None or jobs[job] in progress.done]:
            if len(progress.running) >= engine.slots:
                break
            progress.waiting.remove(job)
            progress.running.append(job)
            starts[job] += 1
            engine.start(job)
        report(progress)
        for job, outcome in engine.poll() if progress.running else []:
            progress.running.remove(job)
            if outcome == "died" and starts[job] <= retries:
                progress.waiting.insert(0, job)
            else:
                (progress.done if outcome == "done" else progress.failed).append(job)
    report(progress)
    return progress
