"""Which subnetworks to probe where there are too many to probe all: beam search, and its cost in advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from probescale.errors import UserError
from probescale.models.subsets import Subset
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure, count_subsets

Score = Callable[[Sequence[Subset]], Mapping[Subset, float]]  # probes subnetworks
WIDEST = 8  # subsets that are grown per size, at most


def beam_search(layers: int, most: int, structure: Structure, score: Score, width: int) -> dict[Subset, float]:
    """The scores of all subnetworks probed by growing the `width` best of every size by one layer, up to `most`."""
    scores: dict[Subset, float] = {}
    beam: list[Subset] = [()]
    most = min(most, structure.sizes(layers)[-1])
    for _ in range(most):
        grown = [longer for subset in beam for longer in _grow(subset, layers, structure)]
        if not grown:
            break
        new = dict(score(grown))
        scores |= new
        ranked = sorted(grown, key=lambda subset: (-new[subset], subset))
        # A subset that ends with a high layer may score best and still have no layers left to grow by. So half of the
        # beam is reserved for subsets that can reach the full size.
        able = [subset for subset in ranked if _can_reach(subset, most, layers, structure)]
        beam = list(dict.fromkeys([*able[: (width + 1) // 2], *ranked, *able]))[:width]
    return scores


def _can_reach(subset: Subset, most: int, layers: int, structure: Structure) -> bool:
    """Whether a subset can grow to `most` layers, including all that are always kept."""
    required = [layer for layer in structure.keep if layer > subset[-1]]
    missing = most - len(subset)
    least = required[-1] - subset[-1] if required and structure.contiguous else len(required)
    return least <= missing <= _max_growth(subset, layers, structure)


def _max_growth(subset: Subset, layers: int, structure: Structure) -> int:
    """How many more layers a subset can get."""
    stops = (subset[-1], *(layer for layer in structure.keep if layer > subset[-1]))
    between = sum((after - before) // structure.gap for before, after in pairwise(stops))
    return between + (layers - stops[-1]) // structure.gap


def _grow(subset: Subset, layers: int, structure: Structure) -> list[Subset]:
    """The subset with one more layer at its end, in every way that the structure allows."""
    last = subset[-1] if subset else 1 - structure.gap
    stop = last + structure.gap + 1 if structure.contiguous and subset else layers + 1
    required = [layer for layer in structure.keep if layer > last]
    stop = min(stop, required[0] + 1 if required else layers + 1)  # a layer that is always kept is never skipped
    return [(*subset, layer) for layer in range(last + structure.gap, stop)]


def beam_width(layers: int, most: int, passes: float, structure: Structure) -> int:
    """The widest beam that is certain to cost at most this many passes through the model."""
    widths = [width for width in range(1, WIDEST + 1) if beam_passes(layers, most, width) <= passes]
    if not widths:
        least = math.ceil(beam_passes(layers, most, 1))
        raise UserError(
            f"the search may cost up to {least} passes through the model, and {passes:g} are allowed",
            field=f"{structure.where}passes",
            hint=f"allow {least}, keep fewer layers, or use stitched",
        )
    return widths[-1]


def refuse_costly(strategy: str, layers: int, most: int, passes: float, structure: Structure) -> None:
    """Raise, before any work, where the search of a strategy may cost more passes than allowed."""
    reads = STRATEGIES[strategy].reads
    if reads == "search":
        beam_width(layers, most, passes, structure)
    elif reads == "all subsets":
        enumerate_subsets(layers, most, passes, structure)


def beam_passes(layers: int, most: int, width: int) -> float:
    """The most passes through the model that a search can cost.

    Every size costs one pass of the full model, and runs the subsets that it grows once more.

    >>> beam_passes(12, 6, 4)
    27.0
    """
    levels = [min(width, math.comb(layers, size)) * layers for size in range(most)]
    levels[0] = layers
    return sum(layers + level for level in levels) / layers


def enumerate_subsets(layers: int, most: int, passes: float, structure: Structure) -> list[Subset]:
    """Every subset of up to `most` layers; refused where probing them costs more passes than allowed."""
    sizes = [size for size in structure.sizes(layers) if size <= most]
    number = sum(count_subsets(layers, size, structure) for size in sizes)
    if number / layers > passes:
        raise UserError(
            f"exhaustive would probe {number:,} subnetworks, about {math.ceil(number / layers):,} passes through the "
            f"model, and {passes:g} are allowed",
            field=f"{structure.where}passes",
            hint="allow more, keep fewer layers, or use stitched_search",
        )
    subsets: list[Subset] = []
    grown: list[Subset] = [()]
    for _ in range(most):
        grown = [longer for subset in grown for longer in _grow(subset, layers, structure)]
        subsets += [subset for subset in grown if structure.allows(subset)]
    return subsets
