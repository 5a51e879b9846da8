"""What any subset has to look like, and the best subset of that shape."""

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
    """Holds for every subset, whatever the strategy."""

    keep: Subset = ()  # layers that are always kept
    gap: int = 1  # smallest distance between two kept layers
    contiguous: bool = False  # neighbours only
    where: str = "selection."  # how errors name the fields

    def allows(self, subset: Subset) -> bool:
        steps = [after - before for before, after in pairwise(subset)]
        return (
            set(self.keep) <= set(subset)
            and all(step >= self.gap for step in steps)
            and not (self.contiguous and any(step > 1 for step in steps))
        )

    def also(self, keep: Sequence[int]) -> Structure:
        """With layers that the model cannot do without."""
        return replace(self, keep=tuple(sorted({*self.keep, *keep})))

    def sizes(self, layers: int) -> range:
        """Numbers of layers that a subset can have. Wishes that contradict each other are refused."""
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


def structure_of(selection: SelectionConfig) -> Structure:
    return Structure(selection.keep, selection.gap, selection.neighbours)


def count(layers: int, k: int, structure: Structure) -> int:
    """How many subsets of k layers there are.

    >>> count(12, 6, Structure()), count(12, 6, Structure(gap=2)), count(12, 6, Structure(contiguous=True))
    (924, 7, 7)
    """
    starts, follows, ends = (part.astype(float) for part in _steps(layers, structure))
    ways = starts
    for _ in range(k - 1):
        ways = ways @ follows
    return int(ways @ ends)


def _steps(layers: int, structure: Structure) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which layer may be the first (L,), which may follow which (before, after), which may be the last (L,)."""
    place = np.arange(layers)
    step = place[None, :] - place[:, None]
    follows = step == 1 if structure.contiguous else step >= structure.gap
    must = np.zeros(layers + 1, int)
    must[np.array(structure.keep, int)] = 1
    behind = np.cumsum(must)  # layers to be kept among the first so many: none is jumped over
    follows &= behind[place][None, :] == behind[place + 1][:, None]
    return behind[place] == 0, follows, behind[place + 1] == behind[-1]


def solve(costs: np.ndarray, structure: Structure) -> Subset | None:
    """The subset of least cost; costs (k, L): of taking layer l as the i-th. Ties go to lower layers; None: no subset.

    >>> solve(-np.array([[3.0, 1.0, 4.0, 1.0, 5.0]] * 2), Structure(gap=3))
    (1, 5)
    """
    starts, follows, ends = _steps(costs.shape[1], structure)
    best = np.where(starts, costs[0], np.inf)
    chosen = []
    for row in costs[1:]:
        ways = np.where(follows, best[:, None], np.inf)  # (before, after)
        chosen.append(ways.argmin(0))
        best = ways.min(0) + row
    best = np.where(ends, best, np.inf)
    last = int(best.argmin())
    if not np.isfinite(best[last]):
        return None
    kept = [last]
    for before in reversed(chosen):
        kept.append(int(before[kept[-1]]))
    return tuple(layer + 1 for layer in reversed(kept))


def by_value(values: Sequence[float], k: int, structure: Structure) -> Iterator[Subset]:
    """The subset with the largest sum of values; then those that differ from it in one layer, best first.

    The others count where layers differ in size, and the best one does not fit the budget.
    """
    known = np.asarray(values, float)
    best = solve(np.tile(-known, (k, 1)), structure)
    if best is None:
        return
    yield best
    others = [layer for layer in range(1, len(known) + 1) if layer not in best]
    swaps = [(known[out - 1] - known[new - 1], out, new) for out in best for new in others]
    for _, out, new in sorted(swaps):
        subset = tuple(sorted({*best, new} - {out}))
        if structure.allows(subset):
            yield subset


def nearest(places: Sequence[int], layers: int, structure: Structure) -> Subset | None:
    """The wished layers, or those of the required shape that are least far from them."""
    wished = tuple(places)
    if structure.allows(wished):
        return wished
    return solve(np.abs(np.arange(1, layers + 1)[None, :] - np.array(wished)[:, None]).astype(float), structure)
