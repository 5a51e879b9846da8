"""Labelled texts and tagged sentences, and what models, probes and metrics read of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from probescale.config import ProbeTarget

if TYPE_CHECKING:
    from typing_extensions import Self


class Data(Protocol):
    """Inputs of a model with their labels.

    An input is a text or a pair of texts. A unit is what carries a label: a whole input, or a word of it.
    """

    per_word: ClassVar[bool]  # a unit is a word, and not an input

    @property
    def kind(self) -> str:
        """Name of the kind of task that these rows belong to."""
        ...

    @property
    def target(self) -> ProbeTarget:
        """What a probe predicts from the labels."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels, by number; empty for numbers."""
        ...

    @property
    def texts(self) -> tuple[str, ...]: ...

    @property
    def pairs(self) -> tuple[str, ...] | None:
        """Second texts, where inputs are pairs."""
        ...

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        """What the model reads of each row: (text,) or (text, pair)."""
        ...

    @property
    def content(self) -> Any:  # noqa: ANN401 - a JSON value
        """Everything the model reads, without the labels: the same content gives the same states."""
        ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def classes(self) -> Sequence[int]:
        """The class of each input, by which splits are stratified; all 0 where inputs have no class."""
        ...

    @property
    def gold(self) -> np.ndarray:
        """(inputs,) the right prediction for each input."""
        ...

    @property
    def row_labels(self) -> np.ndarray:
        """(rows,) labels of all rows that a model answers, as numbers, NaN where a row has none; or (rows, labels)."""
        ...

    @property
    def rows_per_input(self) -> np.ndarray:
        """(inputs,) how many rows a model answers for each input."""
        ...

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Input and word number of every unit with a label; the word is 0 where a unit is an input."""
        ...

    def __len__(self) -> int:
        """Number of inputs."""
        ...

    def take(self, rows: Sequence[int]) -> Self: ...

    def with_texts(self, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Self:
        """Other inputs in the same form, without labels."""
        ...

    def joined(self, more: Any) -> Self:  # noqa: ANN401 - data of the same class
        """The rows of both, own rows first."""
        ...

    def with_names(self, names: tuple[str, ...]) -> Self:
        """The same labels, numbered in another order of their names."""
        ...

    def fully_labelled(self) -> Self:
        """The same inputs with a label on every unit, so that all of them are asked for."""
        ...

    def words_in(self, number: int) -> list[tuple[str, bool]]:
        """Words of an input, and whether each has a label; empty where units are inputs."""
        ...

    def values_at(self, inputs: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Labels of these units: (units,) numbers, or (units, labels) of 0 and 1."""
        ...

    def texts_at(self, inputs: np.ndarray, words: np.ndarray) -> list[tuple[str, ...]]:
        """The text of each of these units."""
        ...


@dataclass(frozen=True)
class Examples:
    """Texts, or pairs of texts, with one label each: a class, several classes, or a number."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: tuple[Any, ...]  # by target; class: a label's number; multi: a tuple of them; number: a float
    names: tuple[str, ...]
    target: ProbeTarget = "class"
    kind: str = "class"
    per_word: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Self:
        pairs = tuple(self.pairs[r] for r in rows) if self.pairs else None
        return replace(
            self,
            texts=tuple(self.texts[r] for r in rows),
            pairs=pairs,
            labels=tuple(self.labels[r] for r in rows),
        )

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        return list(zip(self.texts, self.pairs, strict=True)) if self.pairs else [(text,) for text in self.texts]

    @property
    def content(self) -> list[Any]:
        return [self.texts, self.pairs]

    @property
    def fingerprint(self) -> str:
        return digest([self.texts, self.pairs, self.labels, self.names, self.target])

    @property
    def classes(self) -> Sequence[int]:
        """Of several labels, the rarest one that a text has: where it is spread evenly, the others nearly are."""
        if self.target == "multi":
            counts = self.row_labels.sum(0)
            rarest = ((counts[label], 1 + label) for label in range(len(self.names)))
            rank = dict(enumerate(rarest))
            return [min((rank[label] for label in several), default=(0, 0))[1] for several in self.labels]
        return self.labels if self.target == "class" else [0] * len(self)

    @property
    def gold(self) -> np.ndarray:
        """Of several labels, a tuple with 1 for each label that the text has and 0 for the others."""
        if self.target == "multi":
            return tuple_rows([tuple(row) for row in self.row_labels.tolist()])
        return np.array(self.labels, np.float64 if self.target == "number" else np.int64)

    @property
    def row_labels(self) -> np.ndarray:
        if self.target == "multi":
            return self.values_at(*self.units).astype(np.float64)
        return np.array(self.labels, np.float64)

    @property
    def rows_per_input(self) -> np.ndarray:
        return np.ones(len(self), np.int64)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(self)), np.zeros(len(self), np.int64)

    def with_texts(self, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Self:
        return replace(self, texts=texts, pairs=pairs, labels=(() if self.target == "multi" else 0,) * len(texts))

    def joined(self, more: Any) -> Self:  # noqa: ANN401 - data of the same class
        pairs = self.pairs + more.pairs if self.pairs and more.pairs else None
        return replace(self, texts=self.texts + more.texts, pairs=pairs, labels=self.labels + more.labels)

    def with_names(self, names: tuple[str, ...]) -> Self:
        number = _find_each(self.names, names)
        if self.target == "multi":
            labels = tuple(tuple(sorted(number[label] for label in several)) for several in self.labels)
        else:
            labels = tuple(number[label] for label in self.labels)
        return replace(self, labels=labels, names=names)

    def fully_labelled(self) -> Self:
        return self

    def words_in(self, number: int) -> list[tuple[str, bool]]:
        return []

    def values_at(self, inputs: np.ndarray, words: np.ndarray) -> np.ndarray:
        labels = [self.labels[i] for i in inputs]
        if self.target != "multi":
            return np.array(labels, np.float32 if self.target == "number" else np.int64)
        values = np.zeros((len(labels), len(self.names)), np.float32)
        for row, several in enumerate(labels):
            values[row, list(several)] = 1
        return values

    def texts_at(self, inputs: np.ndarray, words: np.ndarray) -> list[tuple[str, ...]]:
        every = self.inputs
        return [every[i] for i in inputs]


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences split into words, with one tag per word; -1 for a word that has none."""

    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    pairs: None = None
    kind: str = "tags"
    per_word: ClassVar[bool] = True

    @property
    def target(self) -> ProbeTarget:
        return "class"

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(" ".join(words) for words in self.words)

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        return [(text,) for text in self.texts]

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: Sequence[int]) -> Self:
        return replace(self, words=tuple(self.words[r] for r in rows), tags=tuple(self.tags[r] for r in rows))

    @property
    def content(self) -> tuple[tuple[str, ...], ...]:
        return self.words

    @property
    def fingerprint(self) -> str:
        return digest([self.words, self.tags, self.names])

    @property
    def classes(self) -> Sequence[int]:
        return [0] * len(self)

    @property
    def gold(self) -> np.ndarray:
        return tuple_rows(self.tags)

    @property
    def row_labels(self) -> np.ndarray:
        flat = np.array([tag for tags in self.tags for tag in tags], np.float64)
        return np.where(flat < 0, np.nan, flat)

    @property
    def rows_per_input(self) -> np.ndarray:
        return np.array([len(words) for words in self.words], np.int64)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        places = [(i, w) for i, tags in enumerate(self.tags) for w, tag in enumerate(tags) if tag >= 0]
        inputs, words = np.array(places, np.int64).reshape(-1, 2).T
        return inputs, words

    def with_texts(self, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Self:
        words = tuple(tuple(text.split()) for text in texts)
        return replace(self, words=words, tags=tuple((-1,) * len(sentence) for sentence in words))

    def joined(self, more: Any) -> Self:  # noqa: ANN401 - data of the same class
        return replace(self, words=self.words + more.words, tags=self.tags + more.tags)

    def with_names(self, names: tuple[str, ...]) -> Self:
        number = [*_find_each(self.names, names), -1]  # -1 stays -1
        return replace(self, tags=tuple(tuple(number[tag] for tag in tags) for tags in self.tags), names=names)

    def fully_labelled(self) -> Self:
        return replace(self, tags=tuple((0,) * len(words) for words in self.words))

    def words_in(self, number: int) -> list[tuple[str, bool]]:
        return [(word, tag >= 0) for word, tag in zip(self.words[number], self.tags[number], strict=True)]

    def values_at(self, inputs: np.ndarray, words: np.ndarray) -> np.ndarray:
        return np.array([self.tags[i][w] for i, w in zip(inputs, words, strict=True)])

    def texts_at(self, inputs: np.ndarray, words: np.ndarray) -> list[tuple[str, ...]]:
        return [(self.words[i][w],) for i, w in zip(inputs, words, strict=True)]


def tuple_rows(sentences: Sequence[tuple[float, ...]]) -> np.ndarray:
    """An array of tuples, (sentences,): without this, sentences of equal length become a table.

    >>> tuple_rows([(0, 1), (2, 0)]).shape
    (2,)
    """
    rows = np.empty(len(sentences), object)
    rows[:] = sentences
    return rows


def load_rows(rows: Sequence[tuple[str, str]]) -> Examples:
    """Examples from (text, label) pairs."""
    names = tuple(sorted({label for _, label in rows}))
    labels = tuple(_find_each([label for _, label in rows], names))
    return Examples(tuple(text for text, _ in rows), None, labels, names)


def _find_each(names: Sequence[str], among: Sequence[str]) -> list[int]:
    """The place of every name among others."""
    place = {name: number for number, name in enumerate(among)}
    return [place[name] for name in names]


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """sha256 of a value."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()
