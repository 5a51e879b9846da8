"""Which subnetworks are worth probing, when there are too many to probe all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise

from probescale.errors import UserError
from probescale.selection.structure import Structure
from probescale.subsets import Subset, passes_for

Score = Callable[[Sequence[Subset]], Mapping[Subset, float]]  # probes subnetworks
WIDEST = 8


def beam_search(layers: int, most: int, structure: Structure, score: Score, width: int) -> dict[Subset, float]:
    """Grow subnetworks from the embeddings up to `most` layers; per size, the `width` best grow on.

    All that were probed are answered: each is a subnetwork of its own size.
    """
    found: dict[Subset, float] = {}
    beam: list[Subset] = [()]
    most = min(most, structure.sizes(layers)[-1])
    for size in range(1, most + 1):
        grown = [longer for subset in beam for longer in _longer(subset, layers, structure)]
        if not grown:
            break
        new = dict(score(grown))
        found |= new
        # One that ends too high cannot grow to the full size; it stays an answer at its own.
        growing = [subset for subset in grown if _room(subset, layers, structure) >= most - size]
        beam = sorted(growing, key=lambda subset: (-new[subset], subset))[:width]
    return found


def _room(subset: Subset, layers: int, structure: Structure) -> int:
    """How many more layers it can get."""
    ways = (subset[-1], *(layer for layer in structure.keep if layer > subset[-1]))
    between = sum((after - before) // structure.gap for before, after in pairwise(ways))
    return between + (layers - ways[-1]) // structure.gap


def _longer(subset: Subset, layers: int, structure: Structure) -> list[Subset]:
    last = subset[-1] if subset else 1 - structure.gap
    stop = last + structure.gap + 1 if structure.contiguous and subset else layers + 1
    waiting = [layer for layer in structure.keep if layer > last]
    stop = min(stop, waiting[0] + 1 if waiting else layers + 1)  # one that has to stay is not jumped over
    return [(*subset, layer) for layer in range(last + structure.gap, stop)]


def beam_width(layers: int, most: int, passes: float, structure: Structure) -> int:
    """The widest beam that surely stays within so many passes through the whole model."""
    widths = [width for width in range(1, WIDEST + 1) if beam_passes(layers, most, width) <= passes]
    if not widths:
        least = math.ceil(beam_passes(layers, most, 1))
        raise UserError(
            f"the search may cost up to {least} passes through the model, and {passes:g} are allowed",
            field=f"{structure.where}passes",
            hint=f"allow {least}, keep fewer layers, or use stitched",
        )
    return widths[-1]


def beam_passes(layers: int, most: int, width: int) -> float:
    """The most that a search can cost: every level runs its beginnings again, and the model once.

    >>> beam_passes(12, 6, 4)
    30.0
    """
    levels = [min(width, math.comb(layers, size)) * layers for size in range(most)]
    levels[0] = layers
    return sum(layers + level for level in levels) / layers


def all_subsets(layers: int, most: int, passes: float, structure: Structure) -> list[Subset]:
    """Every subset of at most so many layers; refused where running them costs too much."""
    count = sum(math.comb(layers, size) for size in range(1, most + 1))
    if count / layers > passes:
        raise UserError(
            f"exhaustive would probe {count:,} subnetworks, about {math.ceil(count / layers):,} passes through the "
            f"model, and {passes:g} are allowed",
            field=f"{structure.where}passes",
            hint="allow more, keep fewer layers, or use stitched_search",
        )
    chosen = [s for size in range(1, most + 1) for s in combinations(range(1, layers + 1), size) if structure.allows(s)]
    assert passes_for(chosen, layers) <= passes + 1
    return chosen
