"""Strategies: which k layers, given the relevance of each. One function each, registered by its name.

A strategy yields subsets of k layers (numbered from 1, ascending), the best first; `select` takes the first that fits
the budget. The first line of the docstring is the help shown by `probescale list strategies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

Subset = tuple[int, ...]
Strategy = Callable[[Sequence[float], int], Iterator[Subset]]
STRATEGIES: dict[str, Strategy] = {}


def strategy(function: Strategy) -> Strategy:
    STRATEGIES[function.__name__] = function
    return function


def score_of(relevance: Sequence[float], kept: Subset) -> float:
    """The sum that Eq. 2 maximises. Rounded, so that equal sums tie whatever the order of adding."""
    return round(math.fsum(relevance[layer - 1] for layer in kept), 12)


@strategy
def contiguous(relevance: Sequence[float], k: int) -> Iterator[Subset]:
    """The paper's rule (Eq. 2): the block of k neighbouring layers with the largest sum of relevance."""
    layers = len(relevance)
    blocks = [tuple(range(start, start + k)) for start in range(1, layers - k + 2)]
    # Ties go to the lower start: sorting is stable and the blocks come in that order.
    yield from sorted(blocks, key=lambda block: -score_of(relevance, block))


@strategy
def top_k(relevance: Sequence[float], k: int) -> Iterator[Subset]:
    """The paper's baseline: the last k layers."""
    layers = len(relevance)
    yield tuple(range(layers - k + 1, layers + 1))


@strategy
def uniform_k(relevance: Sequence[float], k: int) -> Iterator[Subset]:
    """The paper's baseline: k layers evenly spaced, L/k, 2L/k, ..., L."""
    layers = len(relevance)
    yield tuple(math.floor(i * layers / k + 0.5) for i in range(1, k + 1))
