"""Subsets of a model's layers: contiguous blocks, text forms, and the cost of running many of them."""

from __future__ import annotations

from collections.abc import Iterable

from probescale.errors import UserError

Subset = tuple[int, ...]  # layers numbered from 1, ascending
MAX_LAYERS = 10_000  # more than this is a typing error, or a hostile config


def format_subset(subset: Subset) -> str:
    """The subset as one word, for file names and keys.

    >>> format_subset((1, 2, 5))
    '1-2-5'
    """
    return "-".join(map(str, subset))


def format_layers(layers: Iterable[int]) -> str:
    """Layers for people, with contiguous runs shortened.

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
    """All contiguous blocks of k layers. Fixed layers belong to every block and are skipped over.

    >>> contiguous_blocks(4, 3), contiguous_blocks(5, 3, fixed=(1,))
    ([(1, 2, 3), (2, 3, 4)], [(1, 2, 3), (1, 3, 4), (1, 4, 5)])
    """
    free = [layer for layer in range(1, layers + 1) if layer not in fixed]
    size = k - len(fixed)
    if size <= 0:
        return [tuple(fixed)] if fixed and size == 0 else []
    return [tuple(sorted((*fixed, *free[first : first + size]))) for first in range(len(free) - size + 1)]


def all_contiguous_blocks(layers: int, most: int, fixed: Subset = ()) -> list[Subset]:
    """The contiguous blocks of 1 to `most` layers."""
    return [block for k in range(1, most + 1) for block in contiguous_blocks(layers, k, fixed)]


def count_passes(subsets: Iterable[Subset], layers: int) -> float:
    """The cost of running all subsets, in forward passes of the full model.

    A prefix that several subsets share runs once. Prefixes 1, 2, 3, ... are part of the full model's own pass.

    >>> count_passes(all_contiguous_blocks(12, 12), 12)
    6.5
    """
    prefixes = {subset[:end] for subset in subsets for end in range(1, len(subset) + 1)}
    further = sum(prefix != tuple(range(1, len(prefix) + 1)) for prefix in prefixes)
    return (layers + further) / layers


def parse_layers(text: str, field: str = "--keep") -> tuple[int, ...]:
    """The layers that a text such as `1-3,7` names: (1, 2, 3, 7)."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            ends = [int(first), int(last)] if dash else [int(first), int(first)]
        except ValueError as error:
            raise UserError(f'"{part}" is not a layer', field=field, hint="write layers like 1,2,5 or 1-4,9") from error
        if ends[1] < ends[0]:
            raise UserError(f'"{part}" runs backwards', field=field, hint="name them one by one, such as 3,2,1")
        layers += range(ends[0], min(ends[1], ends[0] + MAX_LAYERS) + 1)
    return tuple(layers)
