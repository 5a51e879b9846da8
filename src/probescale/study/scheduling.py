"""Which job of a study comes next; where it runs is an engine's matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Outcome = Literal["done", "failed", "died"]  # died: not its own fault, so that it is worth another try


class Engine(Protocol):
    slots: int  # jobs at a time

    def start(self, job: str) -> None: ...

    def poll(self) -> list[tuple[str, Outcome]]:
        """Waits a little; what has ended since the last call."""
        ...


@dataclass
class Progress:
    """Jobs by where they stand."""

    waiting: list[str]
    running: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def run_jobs(
    jobs: Mapping[str, str | None],  # what a job has to wait for
    engine: Engine,
    retries: int,
    *,
    done: list[str],
    note: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Run all jobs that are not done; a job whose predecessor failed is not begun."""
    at = Progress(waiting=[job for job in jobs if job not in done], done=list(done))
    tries = dict.fromkeys(jobs, 0)
    while at.waiting or at.running:
        for job in [job for job in at.waiting if jobs[job] in at.failed]:
            at.waiting.remove(job)
            at.failed.append(job)
        for job in [job for job in at.waiting if jobs[job] is None or jobs[job] in at.done]:
            if len(at.running) >= engine.slots:
                break
            at.waiting.remove(job)
            at.running.append(job)
            tries[job] += 1
            engine.start(job)
        note(at)
        for job, outcome in engine.poll() if at.running else []:
            at.running.remove(job)
            if outcome == "died" and tries[job] <= retries:
                at.waiting.insert(0, job)
            else:
                (at.done if outcome == "done" else at.failed).append(job)
    note(at)
    return at
