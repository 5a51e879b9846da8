"""Subsets of a model's layers: how they are written, and what running many of them costs."""

from __future__ import annotations

from collections.abc import Iterable

Subset = tuple[int, ...]  # layers numbered from 1, ascending


def name_of(subset: Subset) -> str:
    """
    >>> name_of((1, 2, 5))
    '1-2-5'
    """
    return "-".join(map(str, subset))


def blocks_of(layers: int, k: int, fixed: Subset = ()) -> list[Subset]:
    """Blocks of neighbours among the layers that may go, with those that have to stay: k layers in all.

    >>> blocks_of(4, 3), blocks_of(5, 3, fixed=(1,))
    ([(1, 2, 3), (2, 3, 4)], [(1, 2, 3), (1, 3, 4), (1, 4, 5)])
    """
    free = [layer for layer in range(1, layers + 1) if layer not in fixed]
    size = k - len(fixed)
    if size <= 0:
        return [tuple(fixed)] if fixed and size == 0 else []
    return [tuple(sorted((*fixed, *free[first : first + size]))) for first in range(len(free) - size + 1)]


def every_block(layers: int, most: int, fixed: Subset = ()) -> list[Subset]:
    return [block for k in range(1, most + 1) for block in blocks_of(layers, k, fixed)]


def passes_for(subsets: Iterable[Subset], layers: int) -> float:
    """Cost of running them all, in passes through the whole model. The model's own pass gives its first layers.

    >>> passes_for(every_block(12, 12), 12)
    6.5
    """
    beginnings = {subset[:end] for subset in subsets for end in range(1, len(subset) + 1)}
    beyond = sum(beginning != tuple(range(1, len(beginning) + 1)) for beginning in beginnings)
    return (layers + beyond) / layers
