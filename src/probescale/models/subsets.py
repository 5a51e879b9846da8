"""Subsets of a model's layers: how they are written, and what running many of them costs."""

from __future__ import annotations

from collections.abc import Iterable

from probescale.errors import UserError

Subset = tuple[int, ...]  # layers numbered from 1, ascending
MOST_LAYERS = 10_000  # a range longer than that is a slip of the finger


def format_subset(subset: Subset) -> str:
    """
    >>> format_subset((1, 2, 5))
    '1-2-5'
    """
    return "-".join(map(str, subset))


def format_layers(layers: Iterable[int]) -> str:
    """Runs of layers written short.

    >>> format_layers([1, 2, 3, 7])
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def contiguous_blocks(layers: int, k: int, fixed: Subset = ()) -> list[Subset]:
    """Blocks of neighbours among the layers that may go, with those that have to stay: k layers in all.

    >>> contiguous_blocks(4, 3), contiguous_blocks(5, 3, fixed=(1,))
    ([(1, 2, 3), (2, 3, 4)], [(1, 2, 3), (1, 3, 4), (1, 4, 5)])
    """
    free = [layer for layer in range(1, layers + 1) if layer not in fixed]
    size = k - len(fixed)
    if size <= 0:
        return [tuple(fixed)] if fixed and size == 0 else []
    return [tuple(sorted((*fixed, *free[first : first + size]))) for first in range(len(free) - size + 1)]


def all_contiguous_blocks(layers: int, most: int, fixed: Subset = ()) -> list[Subset]:
    return [block for k in range(1, most + 1) for block in contiguous_blocks(layers, k, fixed)]


def count_passes(subsets: Iterable[Subset], layers: int) -> float:
    """Cost of running them all, in passes through the whole model. The model's own pass gives its first layers.

    >>> count_passes(all_contiguous_blocks(12, 12), 12)
    6.5
    """
    beginnings = {subset[:end] for subset in subsets for end in range(1, len(subset) + 1)}
    beyond = sum(beginning != tuple(range(1, len(beginning) + 1)) for beginning in beginnings)
    return (layers + beyond) / layers


def parse_layers(text: str, field: str = "--keep") -> tuple[int, ...]:
    """`1-3,7` -> (1, 2, 3, 7)."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            ends = [int(first), int(last)] if dash else [int(first), int(first)]
        except ValueError as error:
            raise UserError(f'"{part}" is not a layer', field=field, hint="write layers like 1,2,5 or 1-4,9") from error
        if ends[1] < ends[0]:
            raise UserError(f'"{part}" runs backwards', field=field, hint="name them one by one, such as 3,2,1")
        layers += range(ends[0], min(ends[1], ends[0] + MOST_LAYERS) + 1)
    return tuple(layers)
