"""Rows left out, drawn and split, always in a way that the seed decides."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from sklearn.model_selection import train_test_split

from probescale.tasks.data import Data

D = TypeVar("D", bound=Data)


def without_repeats(train: D, dev: Data | None = None) -> D:
    """One row per input, and none whose input is in dev: repeats would flatter the metric.

    Rows with the same input and different labels contradict each other: the label of more than half of them is kept,
    and without one, none of them. Case and white space are ignored, as many tokenizers ignore them.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, inputs in enumerate(map(normalise, train.inputs)):
        groups.setdefault(inputs, []).append(row)
    labels = train.gold
    kept = (_find_agreed(rows, labels) for rows in groups.values())
    rows = sorted(row for row in kept if row is not None)
    return without_texts(train.take(rows), dev) if dev else train.take(rows)


def _find_agreed(rows: Sequence[int], labels: np.ndarray) -> int | None:
    """The first row with the label that more than half of these rows have; None where there is no such label."""
    if len(rows) == 1:
        return rows[0]
    label, count = Counter(labels[row] for row in rows).most_common(1)[0]
    return next(row for row in rows if labels[row] == label) if 2 * count > len(rows) else None


def without_texts(data: D, dev: Data) -> D:
    """The rows whose inputs are not in dev; where only one of both has pairs, the rows that share no text with dev."""
    words_differ, pairs_differ = data.per_word != dev.per_word, (data.pairs is None) != (dev.pairs is None)

    def keys(inputs: tuple[str, ...]) -> set[tuple[str, ...]]:
        plain = normalise(inputs)
        if words_differ:  # "it 's" and "it's" are the same text
            plain = tuple(text.replace(" ", "") for text in plain)
        return {(text,) for text in plain} if pairs_differ else {plain}

    taken = set[tuple[str, ...]]().union(*map(keys, dev.inputs))
    return data.take([row for row, inputs in enumerate(data.inputs) if taken.isdisjoint(keys(inputs))])


def normalise(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Texts in the form in which they are compared."""
    return tuple(" ".join(text.split()).casefold() for text in inputs)


def sample(examples: D, most: int | None, seed: int) -> D:
    """At most `most` inputs, drawn with the seed; every class keeps its share where that is possible."""
    if most is None or len(examples) <= most:
        return examples
    kept, _ = split(examples, len(examples) - most, seed)
    return kept


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly from all over them.

    >>> spread(10, 4), spread(2, 4)
    ([0, 3, 6, 9], [0, 1])
    """
    return np.unique(np.linspace(0, count - 1, most).astype(int)).tolist()


def split(examples: D, held_out: int | float, seed: int) -> tuple[D, D]:
    """Two parts, the second of the given size or share; stratified by class where every class has enough rows."""
    first, second = split_rows(examples.classes, held_out, seed)
    return examples.take(first), examples.take(second)


def split_rows(classes: Sequence[int], held_out: int | float, seed: int) -> tuple[list[int], list[int]]:
    """Row numbers of the two parts of a split."""
    rows = np.arange(len(classes))
    size = held_out if isinstance(held_out, int) else max(1, round(held_out * len(classes)))
    counts = np.bincount(np.asarray(classes))
    different = int((counts > 0).sum())
    can_stratify = counts[counts > 0].min() >= 2 and min(size, len(classes) - size) >= different
    first, second = train_test_split(
        rows, test_size=size, random_state=seed, stratify=np.asarray(classes) if can_stratify else None
    )
    return sorted(int(row) for row in first), sorted(int(row) for row in second)


def sample_units(data: D, most: int, seed: int) -> D:
    """At most `most` labelled inputs; or, where words are labelled, the inputs that hold about so many of them."""
    if not data.per_word:
        return sample(data, most, seed)
    inputs, _ = data.units
    order = np.random.default_rng(seed).permutation(len(data))
    words = np.cumsum(np.bincount(inputs, minlength=len(data))[order])
    enough = int(np.searchsorted(words, most)) + 1
    return data.take(sorted(order[:enough].tolist()))


def seeded_draw(text: str, seed: int) -> int:
    """A number below 2**64 that depends on nothing but the text and the seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest(), "big")
