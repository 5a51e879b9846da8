"""The texts that a teacher answers for its students, and those of them that no student learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from probescale.recovery.recipe import Choices
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.unlabelled import changed_copies, joined

# Texts that are held out to judge by: their share, and their largest number
FROM_ALL = 0.05, 500  # nothing learns from them, as in a ladder
FROM_SHORT_TRAININGS = 0.2, 1000  # the final training learns from them
MARGIN = 1.05  # of running text, which is drawn by its characters: blocks beyond those of the recipe are not read


class HeldOut(NamedTuple):
    """Texts that students are judged by."""

    texts: frozenset[int] = frozenset()  # numbers of the user's texts, labelled ones first
    inputs: frozenset[int] = frozenset()  # of these texts and their copies among all inputs


class AnsweredTexts(NamedTuple):
    """Texts without labels, which follow the labelled ones."""

    unlabelled: Data | None
    origins: np.ndarray  # (texts,) labelled ones first: the number of the user's text that each is, or is a copy of

    def reserve(self, seed: int, share: float, most: int) -> HeldOut:
        """Some texts, with all of their copies, to judge by students that have learned from the others.

        >>> AnsweredTexts(None, np.array([0, 1, 2, 3, 0, 1, 2, 3])).reserve(0, *FROM_ALL)
        HeldOut(texts=frozenset({2}), inputs=frozenset({2, 6}))
        """
        texts = int(self.origins.max()) + 1
        drawn = np.random.default_rng(seed).permutation(texts)[: min(max(round(share * texts), 1), most)]
        inputs = np.flatnonzero(np.isin(self.origins, drawn))
        return HeldOut(frozenset(drawn.tolist()), frozenset(inputs.tolist()))

    def copies_of(self, texts: Sequence[int]) -> frozenset[int]:
        """The numbers of the changed copies of these texts, without the texts themselves.

        >>> AnsweredTexts(None, np.array([0, 1, 2, 0, 1, 2])).copies_of([1])
        frozenset({4})
        """
        return frozenset(np.flatnonzero(np.isin(self.origins, texts)).tolist()).difference(texts)


def draw_text(train: Data, choices: Choices, blocks: int, seed: int) -> Data:
    """The training data; of running text with more blocks than are read, passages from all over it."""
    if not isinstance(train, Documents) or choices.texts is None or choices.texts >= blocks:
        return train
    return train.draw(MARGIN * choices.texts / blocks, seed)


def gather_texts(train: Data, unlabelled: Data | None, choices: Choices, seed: int) -> AnsweredTexts:
    """The user's unlabelled texts and changed copies of all texts, as many as the recipe reads."""
    own = len(train) + (0 if unlabelled is None else len(unlabelled))
    origins = np.arange(len(train), own)
    if choices.augment:
        unlabelled = joined(changed_copies(joined(train, unlabelled), choices.augment, seed), unlabelled)
        origins = np.concatenate([np.tile(np.arange(own), choices.augment), origins])
    if unlabelled and choices.texts is not None:  # nobody answers what nobody reads
        drawn = np.random.default_rng(seed).permutation(len(unlabelled))[: max(choices.texts - len(train), 1)]
        unlabelled, origins = unlabelled.take(drawn.tolist()), origins[drawn]
    return AnsweredTexts(unlabelled, np.concatenate([np.arange(len(train)), origins]))
