"""Which job comes next, whatever runs it."""

from __future__ import annotations

from probescale.study.scheduling import Outcome, Progress, run_jobs

JOBS = {"preparation": None, "a": "preparation", "b": "preparation", "other": None, "c": "other"}


class InOrder:
    """Ends the oldest job at every look, as it was told to."""

    def __init__(self, slots: int, **ends: list[Outcome]) -> None:
        self.slots, self.ends, self.started, self.running = slots, ends, [], []

    def start(self, job: str) -> None:
        assert len(self.running) < self.slots
        self.started.append(job)
        self.running.append(job)

    def poll(self) -> list[tuple[str, Outcome]]:
        job = self.running.pop(0)
        left = self.ends.get(job, [])
        return [(job, left.pop(0) if left else "done")]


def test_shared_work_comes_first_and_slots_are_filled():
    engine, seen = InOrder(2), list[Progress]()
    at = run_jobs(JOBS, engine, 0, done=[], report=lambda now: seen.append(Progress([], list(now.running))))
    assert engine.started == ["preparation", "other", "a", "b", "c"]
    assert sorted(at.done) == sorted(JOBS)
    assert seen[0].running == ["preparation", "other"]


def test_what_is_done_is_not_done_again():
    engine = InOrder(1)
    at = run_jobs(JOBS, engine, 0, done=["preparation", "a"])
    assert engine.started == ["b", "other", "c"]
    assert sorted(at.done) == sorted(JOBS)


def test_a_job_that_died_is_begun_again_and_one_that_failed_is_not():
    engine = InOrder(1, a=["died", "died"], b=["failed"])
    at = run_jobs(JOBS, engine, 2, done=[])
    assert engine.started.count("a") == 3
    assert engine.started.count("b") == 1
    assert at.failed == ["b"]


def test_too_many_deaths_are_a_failure():
    engine = InOrder(1, a=["died"] * 3)
    at = run_jobs(JOBS, engine, 2, done=[])
    assert engine.started.count("a") == 3
    assert at.failed == ["a"]


def test_nothing_is_built_on_ground_that_failed():
    engine = InOrder(2, preparation=["failed"])
    at = run_jobs(JOBS, engine, 0, done=[])
    assert engine.started == ["preparation", "other", "c"]
    assert sorted(at.failed) == ["a", "b", "preparation"]
    assert sorted(at.done) == ["c", "other"]
