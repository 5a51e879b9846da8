"""Properties that need no labels: derived from any text, or from the features of a CoNLL-U file.

They are general linguistic probes, in addition to a task's own labels or instead of them. A property is added by one
function with the decorator `structural`: it takes columns and a seed, and returns texts with their labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.data import Data, Examples, load_rows
from probescale.tasks.readers import Columns, read_columns
from probescale.tasks.sampling import seeded_draw, without_texts
from probescale.utils.registry import first_doc_line

Labelled = list[tuple[str, str]]  # text, label
Make = Callable[[Columns, int], Labelled]

LENGTH_CLASSES = 6
MOST_CONTENT_WORDS = 30
FEWEST_SENTENCES = 20  # that must contain a word before it becomes a class


@dataclass(frozen=True)
class Property:
    """A function that labels texts, and the columns that it reads."""

    name: str
    columns: dict[str, str]  # role -> column of a CoNLL-U file; empty: any text
    make: Make

    @property
    def help(self) -> str:
        return first_doc_line(self.make)


PROPERTIES: dict[str, Property] = {}


def structural(**columns: str) -> Callable[[Make], Make]:
    """Register a property under the function's name; its docstring is the help."""

    def register(make: Make) -> Make:
        PROPERTIES[make.__name__] = Property(make.__name__, columns, make)
        return make

    return register


def load_property(
    name: str, data: DataConfig | None, texts: tuple[str, ...], seed: int, *, field: str, dev: Data | None = None
) -> Examples:
    """Texts labelled with a property, from its own data or from the task's texts, without those of dev."""
    wanted = PROPERTIES[name]
    if data is None and wanted.columns:
        raise UserError(
            f'"{name}" is read from the features of a CoNLL-U file',
            field=f"{field}.data",
            hint="add data: file.conllu",
        )
    if data is None:
        columns: Columns = {"text": list(texts)}
    elif wanted.columns:
        columns = read_columns(data.source, data.split, dict(wanted.columns), header=data.header, field=f"{field}.data")
    else:
        columns = {"text": _read_texts(data, field=f"{field}.data")}
    rows = wanted.make(_without_dev(columns, dev) if dev else columns, seed)
    if len({label for _, label in rows}) < 2:
        raise UserError(
            f'"{name}" finds {len(rows)} usable sentences here, all of one class',
            field=field,
            hint="give more or longer texts with data:",
        )
    return load_rows(rows)


def _without_dev(columns: Columns, dev: Data) -> Columns:
    """The columns without rows of dev: once words are exchanged, a text of dev is not recognised."""
    texts = columns["text"] if "text" in columns else [" ".join(words) for words in columns["words"]]
    rows = Examples(tuple(texts), None, tuple(range(len(texts))), ())
    kept = without_texts(rows, dev).labels
    return {name: [column[row] for row in kept] for name, column in columns.items()}


def _read_texts(data: DataConfig, *, field: str) -> list[str]:
    cells = read_columns(data.source, data.split, {"text": data.text}, header=data.header, field=field)["text"]
    return [" ".join(map(str, cell)) if isinstance(cell, (list, tuple)) else str(cell) for cell in cells]


@structural()
def sentence_length(columns: Columns, seed: int) -> Labelled:
    """Number of words, in six classes of about equal size."""
    counts = np.array([len(text.split()) for text in columns["text"]])
    edges = np.unique(np.quantile(counts, np.arange(1, LENGTH_CLASSES) / LENGTH_CLASSES, method="lower"))
    return [(t, str(int(np.searchsorted(edges, n)))) for t, n in zip(columns["text"], counts, strict=True)]


@structural()
def bigram_shift(columns: Columns, seed: int) -> Labelled:
    """Whether two neighbouring words were swapped (in half of the sentences of five words or more)."""
    rows = []
    for text in columns["text"]:
        words = text.split()
        draw = seeded_draw(text, seed)
        places = [i for i in range(len(words) - 1) if words[i].casefold() != words[i + 1].casefold()]
        if len(words) < 5 or not places:
            continue
        if draw % 2:
            i = places[draw // 2 % len(places)]
            words[i], words[i + 1] = words[i + 1], words[i]
        rows.append((" ".join(words), "swapped" if draw % 2 else "original"))
    return rows


@structural()
def word_content(columns: Columns, seed: int) -> Labelled:
    """Which of thirty words of middle frequency is in the sentence (sentences with exactly one of them)."""
    bags = [(text, {w for w in text.casefold().split() if w.isalpha()}) for text in columns["text"]]
    counts = Counter(word for _, bag in bags for word in bag)
    common = [w for w, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if n >= FEWEST_SENTENCES]
    middle = set(common[len(common) // 4 :][:MOST_CONTENT_WORDS])
    return [(text, next(iter(here))) for text, bag in bags if len(here := bag & middle) == 1]


@structural(words="form", heads="head", relations="deprel", values="Tense")
def tense(columns: Columns, seed: int) -> Labelled:
    """Tense of the main verb, from CoNLL-U."""
    return _label_by_word(columns, lambda relations, heads: next((i for i, h in enumerate(heads) if h == "0"), None))


@structural(words="form", heads="head", relations="deprel", values="Number")
def subject_number(columns: Columns, seed: int) -> Labelled:
    """Number (Sing, Plur) of the main verb's subject, from CoNLL-U."""

    def subject(relations: list[str], heads: list[str]) -> int | None:
        root = next((i for i, head in enumerate(heads) if head == "0"), None)
        under = [i for i, r in enumerate(relations) if str(r).startswith("nsubj") and heads[i] == str((root or 0) + 1)]
        return under[0] if under and root is not None else None

    return _label_by_word(columns, subject)


def _label_by_word(columns: Columns, choose: Callable[[Any, Any], int | None]) -> Labelled:
    """Sentences labelled with the value of one word, which `choose` finds by its place; others are left out."""
    rows = []
    names = ("words", "heads", "relations", "values")
    for words, heads, relations, values in zip(*(columns[name] for name in names), strict=True):
        place = choose(relations, heads)
        if place is not None and values[place] is not None:
            rows.append((" ".join(words), values[place]))
    return rows
