"""Time two things side by side, and notice when other work on the machine disturbs the timing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from probescale.models.fast_float32 import usual_float32

WARM_UP = 3  # passes that are not counted
PASSES = 15
WAITED = 0.1  # share of the time without a processor, above which other work disturbs the timing
UNSTEADY = 2.0  # times between the ends of the spread, above which a speed is only a guess


class SpeedSpread(BaseModel):
    """How far single measurements of a speed lie apart, and whether other work disturbed them."""

    model_config = ConfigDict(frozen=True)

    low: float  # a tenth of the passes were slower than this, beside the original
    high: float  # a tenth were faster
    waited: float  # share of the time in which the measured thread had no processor

    @property
    def busy(self) -> bool:
        """Whether the machine did other work at the same time, so that the speed is only a guess."""
        return self.waited > WAITED or self.high > UNSTEADY * self.low


@dataclass(frozen=True)
class Speed:
    """The time of one pass, and how many times as fast that is as the reference."""

    milliseconds: float  # median
    speedup: float  # ratio of the medians
    spread: SpeedSpread


@usual_float32()
def compare_speed(reference: Callable[[int], object], own: Callable[[int], object], passes: int = PASSES) -> Speed:
    """Time both in turn, each called with the number of the round.

    Both compute as they will for users. They change places every round, so that other load slows both of them alike. A
    thread that is always at work has as much processor time as time: what is missing, other work has had.
    """
    calls = (reference, own)
    times: tuple[list[float], list[float]] = ([], [])  # seconds of every pass, of the reference and of the other
    worked = 0.0
    for number in range(WARM_UP + passes):
        for which in (0, 1) if number % 2 else (1, 0):
            begin, work = time.perf_counter(), time.thread_time()
            calls[which](number)
            if number >= WARM_UP:
                worked += time.thread_time() - work
                times[which].append(time.perf_counter() - begin)
    medians = [statistics.median(taken) for taken in times]
    ratios = [slow / fast for slow, fast in zip(*times, strict=True)]
    low, *_, high = statistics.quantiles(ratios, n=10, method="inclusive") if passes > 1 else ratios * 2
    waited = max(1 - worked / sum(map(sum, times)), 0.0)
    return Speed(
        milliseconds=round(1000 * medians[1], 3),
        speedup=round(medians[0] / medians[1], 3),
        spread=SpeedSpread(low=round(low, 3), high=round(high, 3), waited=round(waited, 3)),
    )
