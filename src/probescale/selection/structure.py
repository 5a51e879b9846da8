"""Structural requirements on a set of kept layers, and the best set that meets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from probescale.config import SelectionConfig
from probescale.errors import UserError
from probescale.models.subsets import Subset


@dataclass(frozen=True)
class Structure:
    """Requirements that every subset has to meet, whatever the strategy."""

    keep: Subset = ()  # layers that are always kept
    gap: int = 1  # smallest distance between two kept layers
    contiguous: bool = False  # one contiguous block only
    where: str = "selection."  # how errors name the fields

    @classmethod
    def from_config(cls, selection: SelectionConfig) -> Structure:
        return cls(selection.keep, selection.gap, selection.neighbours)

    def allows(self, subset: Subset) -> bool:
        steps = [after - before for before, after in pairwise(subset)]
        return (
            set(self.keep) <= set(subset)
            and all(step >= self.gap for step in steps)
            and not (self.contiguous and any(step > 1 for step in steps))
        )

    def with_kept(self, keep: Sequence[int]) -> Structure:
        """The same requirements, with more layers that are always kept."""
        return replace(self, keep=tuple(sorted({*self.keep, *keep})))

    def sizes(self, layers: int) -> range:
        """Numbers of layers that a subset can have; contradictory requirements are refused."""
        if self.contiguous and self.gap > 1:
            raise UserError(
                f"neighbouring layers only and a gap of {self.gap} contradict each other",
                field=f"{self.where}gap",
                hint=f"leave {self.where}gap or {self.where}neighbours out",
            )
        if outside := [layer for layer in self.keep if not 1 <= layer <= layers]:
            raise UserError(
                f"layer {outside[0]} does not exist", field=f"{self.where}keep", hint=f"give layers from 1 to {layers}"
            )
        if any(after - before < self.gap for before, after in pairwise(self.keep)):
            raise UserError(
                f"layers {', '.join(map(str, self.keep))} are closer than the gap of {self.gap}",
                field=f"{self.where}gap",
                hint=f"choose a smaller {self.where}gap",
            )
        if not self.keep:
            return range(1, (layers - 1) // self.gap + 2)
        first, last = self.keep[0], self.keep[-1]
        between = sum((after - before) // self.gap for before, after in pairwise(self.keep))
        most = 1 + between + (first - 1) // self.gap + (layers - last) // self.gap
        return range(last - first + 1 if self.contiguous else len(self.keep), most + 1)


def count_subsets(layers: int, k: int, structure: Structure) -> int:
    """How many subsets of k layers meet the requirements.

    >>> [count_subsets(12, 6, wanted) for wanted in (Structure(), Structure(gap=2), Structure(contiguous=True))]
    [924, 7, 7]
    """
    starts, follows, ends = (allowed.astype(float) for allowed in _transitions(layers, structure))
    ways = starts
    for _ in range(k - 1):
        ways = ways @ follows
    return int(ways @ ends)


def _transitions(layers: int, structure: Structure) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which layer may be the first (L,), which may follow which (before, after), which may be the last (L,)."""
    index = np.arange(layers)
    distance = index[None, :] - index[:, None]
    follows = distance == 1 if structure.contiguous else distance >= structure.gap
    required = np.zeros(layers + 1, int)
    required[np.array(structure.keep, int)] = 1
    passed = np.cumsum(required)  # [i]: required layers among the first i; a step may not skip any of them
    follows &= passed[index][None, :] == passed[index + 1][:, None]
    return passed[index] == 0, follows, passed[index + 1] == passed[-1]


def find_cheapest(costs: np.ndarray, structure: Structure) -> Subset | None:
    """The subset of least total cost, by dynamic programming; None where no subset meets the requirements.

    costs[i, l] is the cost of layer l + 1 as the kept layer number i + 1. Ties go to lower layers.

    >>> find_cheapest(-np.array([[3.0, 1.0, 4.0, 1.0, 5.0]] * 2), Structure(gap=3))
    (1, 5)
    """
    starts, follows, ends = _transitions(costs.shape[1], structure)
    best = np.where(starts, costs[0], np.inf)
    predecessors = []
    for row in costs[1:]:
        reached = np.where(follows, best[:, None], np.inf)  # (before, after)
        predecessors.append(reached.argmin(0))
        best = reached.min(0) + row
    best = np.where(ends, best, np.inf)
    last = int(best.argmin())
    if not np.isfinite(best[last]):
        return None
    kept = [last]
    for before in reversed(predecessors):
        kept.append(int(before[kept[-1]]))
    return tuple(layer + 1 for layer in reversed(kept))


def rank_by_value(values: Sequence[float], k: int, structure: Structure) -> Iterator[Subset]:
    """The subset with the largest sum of values; then those that differ from it in one layer, best first.

    The later ones matter where layers differ in size and the best subset does not fit the budget.
    """
    by_layer = np.asarray(values, float)
    best = find_cheapest(np.tile(-by_layer, (k, 1)), structure)
    if best is None:
        return
    yield best
    others = [layer for layer in range(1, len(by_layer) + 1) if layer not in best]
    swaps = [(by_layer[out - 1] - by_layer[new - 1], out, new) for out in best for new in others]
    for _, out, new in sorted(swaps):
        subset = tuple(sorted({*best, new} - {out}))
        if structure.allows(subset):
            yield subset


def find_nearest(wanted: Sequence[int], layers: int, structure: Structure) -> Subset | None:
    """The wanted layers where the structure allows them; else the allowed subset at the least distance from them."""
    if structure.allows(tuple(wanted)):
        return tuple(wanted)
    distances = np.abs(np.arange(1, layers + 1)[None, :] - np.array(wanted)[:, None])
    return find_cheapest(distances.astype(float), structure)
