"""Regressions: dev examples that the original gets right and the smaller model wrong, in total and by slice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from probescale.tasks.data import Data
from probescale.tasks.task import Task
from probescale.utils.files import Record

MAX_EXAMPLES = 25
MAX_CHARACTERS = 300  # of an example
NEGATIONS = re.compile(r"\b(no|not|never|none|nobody|nothing|neither|nor|without|hardly|cannot)\b|n['\u2019]t\b", re.I)


class Slice(Record):
    """A part of the dev set, and how both models do on it."""

    name: str
    rows: int
    original: float  # share of rows that are right
    small: float
    newly_wrong: int
    newly_right: int


class Example(Record):
    """A dev example that became wrong."""

    row: int  # in the dev set, from 1
    text: str
    right: str
    original: str
    small: str


class Regressions(Record):
    """Dev examples on which the subnetwork is wrong and the original right, by group. Saved as regressions.json."""

    agreement: float  # share of rows on which both models agree
    newly_wrong: int
    newly_right: int
    slices: tuple[Slice, ...]  # all rows first
    examples: tuple[Example, ...]


def find_regressions(task: Task, original: np.ndarray, small: np.ndarray) -> Regressions | None:
    """Compare both models' predictions; None for kinds of task whose predictions are not simply right or wrong."""
    gold, kind = task.gold, task.kind
    was, now = (kind.right(gold, predicted) for predicted in (original, small))
    if was is None or now is None:
        return None
    texts, shown = _texts(task.dev), partial(kind.show, names=task.train.names)
    worse = np.flatnonzero(was & ~now)
    return Regressions(
        agreement=float(np.mean([shown(a) == shown(b) for a, b in zip(original, small, strict=True)])),
        newly_wrong=len(worse),
        newly_right=int((now & ~was).sum()),
        slices=tuple(_slice(name, rows, was, now) for name, rows in _slices(task, texts).items() if rows.any()),
        examples=tuple(
            Example(
                row=int(row) + 1,
                text=texts[row][:MAX_CHARACTERS],
                **{name: shown(predicted[row]) for name, predicted in
                   (("right", gold), ("original", original), ("small", small))},
            )
            for row in worse[:MAX_EXAMPLES]
        ),
    )  # fmt: skip


def _slices(task: Task, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Name -> mask of dev rows: by length, negation, unseen words, and what the kind of task adds."""
    lengths = np.array([len(text.split()) for text in texts])
    short, long = np.quantile(lengths, [1 / 3, 2 / 3])
    seen = {word for text in _texts(task.train) for word in _split(text)}
    found = {
        "all": np.ones(len(texts), bool),
        f"short (at most {short:.0f} words)": lengths <= short,
        "of middle length": (lengths > short) & (lengths <= long),
        f"long (over {long:.0f} words)": lengths > long,
        "with a negation": _where(texts, lambda text: NEGATIONS.search(text) is not None),
        "with a word that train does not have": _where(texts, lambda text: any(w not in seen for w in _split(text))),
    }
    return found | task.kind.slices(task.gold, task.train.names)


def _slice(name: str, rows: np.ndarray, was: np.ndarray, now: np.ndarray) -> Slice:
    was, now = was[rows], now[rows]
    return Slice(
        name=name,
        rows=int(rows.sum()),
        original=float(was.mean()),
        small=float(now.mean()),
        newly_wrong=int((was & ~now).sum()),
        newly_right=int((now & ~was).sum()),
    )


def _where(texts: Sequence[str], holds: Callable[[str], bool]) -> np.ndarray:
    return np.array([holds(text) for text in texts])


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _texts(data: Data) -> list[str]:
    if data.pairs is None:
        return list(data.texts)
    return [f"{text} | {pair}" for text, pair in zip(data.texts, data.pairs, strict=True)]
