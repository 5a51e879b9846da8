"""Which subnetworks are worth probing, when there are too many to probe all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from probescale.errors import UserError
from probescale.models.subsets import Subset
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure, count

Score = Callable[[Sequence[Subset]], Mapping[Subset, float]]  # probes subnetworks
WIDEST = 8


def beam_search(layers: int, most: int, structure: Structure, score: Score, width: int) -> dict[Subset, float]:
    """Grow subnetworks from the embeddings up to `most` layers; per size, the `width` best grow on.

    All that were probed are answered: each is a subnetwork of its own size.
    """
    found: dict[Subset, float] = {}
    beam: list[Subset] = [()]
    most = min(most, structure.sizes(layers)[-1])
    for _ in range(most):
        grown = [longer for subset in beam for longer in _longer(subset, layers, structure)]
        if not grown:
            break
        new = dict(score(grown))
        found |= new
        ranked = sorted(grown, key=lambda subset: (-new[subset], subset))
        # One that ends high is good at its own size, but cannot grow to the full one: half of the beam has to.
        able = [subset for subset in ranked if _can_reach(subset, most, layers, structure)]
        beam = list(dict.fromkeys([*able[: (width + 1) // 2], *ranked, *able]))[:width]
    return found


def _can_reach(subset: Subset, most: int, layers: int, structure: Structure) -> bool:
    """Whether it can grow to so many layers, with all that have to stay."""
    waiting = [layer for layer in structure.keep if layer > subset[-1]]
    left = most - len(subset)
    needed = waiting[-1] - subset[-1] if waiting and structure.contiguous else len(waiting)
    return needed <= left <= _room(subset, layers, structure)


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


def refuse_costly(strategy: str, layers: int, most: int, passes: float, structure: Structure) -> None:
    """Before any work: a search that may cost more than is allowed."""
    reads = STRATEGIES[strategy].reads
    if reads == "search":
        beam_width(layers, most, passes, structure)
    elif reads == "all subsets":
        all_subsets(layers, most, passes, structure)


def beam_passes(layers: int, most: int, width: int) -> float:
    """The most that a search can cost: every level runs its beginnings again, and the model once.

    >>> beam_passes(12, 6, 4)
    27.0
    """
    levels = [min(width, math.comb(layers, size)) * layers for size in range(most)]
    levels[0] = layers
    return sum(layers + level for level in levels) / layers


def all_subsets(layers: int, most: int, passes: float, structure: Structure) -> list[Subset]:
    """Every subset of at most so many layers; refused where running them costs too much."""
    sizes = [size for size in structure.sizes(layers) if size <= most]
    number = sum(count(layers, size, structure) for size in sizes)
    if number / layers > passes:
        raise UserError(
            f"exhaustive would probe {number:,} subnetworks, about {math.ceil(number / layers):,} passes through the "
            f"model, and {passes:g} are allowed",
            field=f"{structure.where}passes",
            hint="allow more, keep fewer layers, or use stitched_search",
        )
    found: list[Subset] = []
    grown: list[Subset] = [()]
    for _ in range(most):
        grown = [longer for subset in grown for longer in _longer(subset, layers, structure)]
        found += [subset for subset in grown if structure.allows(subset)]
    return found
