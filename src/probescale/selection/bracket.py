"""Find the smallest size that is good enough with few measurements: predict, measure, correct, repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def predict_values(cheap: Mapping[int, float], measured: Mapping[int, float]) -> dict[int, float]:
    """The expected value of every size: its cheap score, corrected by the error at the measured sizes.

    >>> predict_values({1: 0.5, 2: 0.6, 3: 0.8}, {3: 0.9})[1]
    0.5625
    """
    sizes = sorted(measured)
    ratios = [measured[size] / cheap[size] if cheap[size] > 0 else 1.0 for size in sizes]
    return {size: float(score * np.interp(size, sizes, ratios)) for size, score in cheap.items()}


def max_evaluations(sizes: int) -> int:
    """The number of measurements that is always enough to find the smallest of this many sizes, by bisection.

    >>> max_evaluations(5), max_evaluations(11)
    (3, 4)
    """
    return math.ceil(math.log2(sizes + 1))


def next_size(candidates: Sequence[int], expected: Mapping[int, float], target: float, left: int) -> int:
    """The smallest size that is expected to reach the target, or the nearest one that bisection can afford.

    Whether it reaches the target or not, `left` measurements, with this one, have to be enough for all candidates.
    """
    promising = [place for place, size in enumerate(candidates) if expected[size] >= target]
    guess = promising[0] if promising else len(candidates) - 1
    decidable = 2 ** max(left - 1, 0) - 1  # candidates that the measurements after this one can decide
    low, high = len(candidates) - 1 - decidable, decidable
    return candidates[min(max(guess, low), high) if low <= high else len(candidates) // 2]


def find_smallest(
    sizes: Sequence[int],
    full: int,
    cheap: Mapping[int, float],
    measure: Callable[[int, float | None], float],
    find_target: Callable[[float], float],
) -> tuple[int, dict[int, float]]:
    """The smallest size that reaches the target, and all measured values. The full size is measured first.

    `measure(size, expected)` trains and evaluates; `find_target(value of the full size)` is the value to reach.
    """
    measured = {full: measure(full, None)}
    target = find_target(measured[full])
    candidates, best = sorted(sizes), full
    left = max_evaluations(len(candidates))
    while candidates:
        expected = predict_values(cheap, measured)
        size = next_size(candidates, expected, target, left)
        measured[size] = measure(size, expected[size])
        left -= 1
        if measured[size] >= target:
            best, candidates = size, [smaller for smaller in candidates if smaller < size]
        else:
            candidates = [larger for larger in candidates if larger > size]
    return best, measured
