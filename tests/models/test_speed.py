"""Timing two things side by side: which is faster, how far single passes lie apart, whether other work disturbed it."""

from __future__ import annotations

import time

import pytest

from probescale.models import speed
from probescale.models.speed import SpeedSpread, compare_speed


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves as the measured calls say: wall time, and the processor's part of it."""
    now = {"wall": 0.0, "worked": 0.0}
    fake = type("Clock", (), {"perf_counter": lambda: now["wall"], "thread_time": lambda: now["worked"]})
    monkeypatch.setattr(speed, "time", fake)

    def work(seconds: float, waited: float = 0.0) -> None:
        now["wall"] += seconds + waited
        now["worked"] += seconds

    return work


def test_the_speed_is_the_ratio_of_the_medians(clock):
    found = compare_speed(lambda _: clock(0.04), lambda _: clock(0.01))
    assert (found.milliseconds, found.speedup) == (10.0, 4.0)
    assert found.spread == SpeedSpread(low=4.0, high=4.0, waited=0.0)
    assert not found.spread.busy


def test_time_without_a_processor_is_noticed(clock):
    found = compare_speed(lambda _: clock(0.04, waited=0.04), lambda _: clock(0.01, waited=0.01))
    assert found.speedup == 4.0
    assert found.spread.waited == 0.5
    assert found.spread.busy


def test_passes_that_lie_far_apart_are_noticed(clock):
    found = compare_speed(lambda number: clock(0.04 * (1 + 2 * (number % 2))), lambda _: clock(0.01))
    assert (found.spread.low, found.spread.high) == (4.0, 12.0)
    assert found.spread.busy


def test_both_change_places_every_round():
    order: list[str] = []
    compare_speed(lambda _: order.append("a"), lambda _: order.append("b"), passes=1)
    assert order == list("baabbaab")


def test_a_thread_that_sleeps_has_waited():
    found = compare_speed(lambda _: time.sleep(0.002), lambda _: time.sleep(0.002), passes=3)
    assert found.spread.busy
