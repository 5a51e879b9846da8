"""Pairs of training texts that teach an encoder beside the original's vectors.

A question and its passage should be nearer to each other than to the other texts of a batch (contrastive, InfoNCE).
Pairs with scores should have similarities in the order of these scores (CoSENT): only the order is learned, because the
original's similarities, which are learned as well, have a scale of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from probescale.tasks.passages import TaughtPair

SHARPNESS = 0.05  # temperature of similarities
NOWHERE = -1e4  # the similarity of texts that are not to be found


@dataclass(frozen=True)
class PairLessons:
    """Pairs by the numbers of their texts, each with its score; None: its texts belong together."""

    pairs: tuple[TaughtPair, ...]

    @cached_property
    def partners(self) -> dict[int, list[tuple[int, float | None]]]:
        """For every text, the others of its pairs."""
        found: dict[int, list[tuple[int, float | None]]] = {}
        for one, other, score in self.pairs:
            found.setdefault(one, []).append((other, score))
            found.setdefault(other, []).append((one, score))
        return found

    def arrange(self, order: Sequence[int], numbers: Sequence[int]) -> list[int]:
        """The same order of places, but a partner of each text follows it, so that one batch has both.

        `numbers`: the texts at these places.

        >>> PairLessons(((7, 9, None),)).arrange([3, 0, 2, 1], [9, 8, 5, 7])
        [3, 0, 2, 1]
        >>> PairLessons(((7, 5, None),)).arrange([3, 0, 2, 1], [9, 8, 5, 7])
        [3, 2, 0, 1]
        """
        places, waiting, arranged = {number: place for place, number in enumerate(numbers)}, set(order), list[int]()
        for place in order:
            if place not in waiting:
                continue
            partners = (places.get(other, -1) for other, _ in self.partners.get(numbers[place], ()))
            nearest = next((other for other in partners if other in waiting and other != place), None)
            arranged += [place] if nearest is None else [place, nearest]
            waiting -= {place} if nearest is None else {place, nearest}
        return arranged

    def loss(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """The loss of the pairs of which a batch has both texts; 0 where it has none."""
        places = {row: place for place, row in enumerate(rows.tolist())}
        found = [
            (place, places[other], score)
            for row, place in places.items()
            for other, score in self.partners.get(row, ())
            if row < other and other in places
        ]
        together = [(one, other) for one, other, score in found if score is None]
        scored = [(one, other, score) for one, other, score in found if score is not None]
        unit, total = normalize(vectors, dim=-1), vectors.new_zeros(())
        if together:
            total = total + _contrast(unit @ unit.T, torch.tensor(together, device=vectors.device))
        if scored:
            first, second, scores = (torch.tensor(part, device=vectors.device) for part in zip(*scored, strict=True))
            total = total + _rank((unit[first] * unit[second]).sum(-1), scores)
        return total


def _contrast(near: Tensor, together: Tensor) -> Tensor:
    """How badly each text of a pair finds the other one among the texts of a batch, by (texts, texts) similarities."""
    first, second = torch.cat([together, together.flip(1)]).T
    belongs = torch.eye(len(near), dtype=torch.bool, device=near.device)  # a text does not find itself
    belongs[first, second] = True
    wanted = torch.nn.functional.one_hot(second, len(near)).bool()
    hidden = belongs[first] & ~wanted  # nor are its other partners wrong answers
    return cross_entropy((near[first] / SHARPNESS).masked_fill(hidden, NOWHERE), second)


def _rank(near: Tensor, scores: Tensor) -> Tensor:
    """How far (pairs,) similarities are from the order of the scores."""
    wrong = (near[:, None] - near[None, :]) / SHARPNESS  # positive where the first should be, and is not, farther
    compared = wrong[scores[:, None] < scores[None, :]]
    return torch.cat([compared.new_zeros(1), compared]).logsumexp(0)
