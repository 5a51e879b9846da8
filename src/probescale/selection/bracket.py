"""Find the smallest size that is good enough, in few measurements: predict, measure, correct, stop when bracketed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def predict_values(cheap: Mapping[int, float], measured: Mapping[int, float]) -> dict[int, float]:
    """What to expect at every size: the cheap score there, corrected by how far it was off at the measured sizes.

    >>> predict_values({1: 0.5, 2: 0.6, 3: 0.8}, {3: 0.9})[1]
    0.5625
    """
    sizes = sorted(measured)
    ratios = [measured[size] / cheap[size] if cheap[size] > 0 else 1.0 for size in sizes]
    return {size: float(score * np.interp(size, sizes, ratios)) for size, score in cheap.items()}


def max_evaluations(sizes: int) -> int:
    """Measurements that surely find the border among so many sizes.

    >>> max_evaluations(5), max_evaluations(11)
    (3, 4)
    """
    return math.ceil(math.log2(sizes + 1))


def next_size(candidates: Sequence[int], expected: Mapping[int, float], wanted: float, left: int) -> int:
    """The smallest size that is expected to do, as long as either answer leaves few enough for the trials left."""
    promising = [place for place, size in enumerate(candidates) if expected[size] >= wanted]
    guess = promising[0] if promising else len(candidates) - 1
    room = 2 ** max(left - 1, 0) - 1  # candidates that the trials after this one can tell apart
    low, high = len(candidates) - 1 - room, room
    return candidates[min(max(guess, low), high) if low <= high else len(candidates) // 2]


def find_smallest(
    sizes: Sequence[int],
    full: int,
    cheap: Mapping[int, float],
    measure: Callable[[int, float | None], float],
    wanted: Callable[[float], float],
) -> tuple[int, dict[int, float]]:
    """Measure the full size first, then as few of the others as it takes; (smallest that does, all that was measured).

    `measure(size, expected)` trains and evaluates; `wanted(value of the full size)` is the value to reach.
    """
    measured = {full: measure(full, None)}
    target = wanted(measured[full])
    candidates, best = sorted(sizes), full
    left = max_evaluations(len(candidates))
    while candidates:
        expected = predict_values(cheap, measured)
        size = next_size(candidates, expected, target, left)
        measured[size] = measure(size, expected[size])
        left -= 1
        if measured[size] >= target:
            best, candidates = size, [one for one in candidates if one < size]
        else:
            candidates = [one for one in candidates if one > size]
    return best, measured
