"""Rows that contradict each other: the same text with different labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.tasks.sampling import normalise

EXAMPLES = 3
LONGEST = 60  # characters of a text or label in a sentence
RULE = (
    "Such a text is trained with the label that more than half of its rows have, or else left out; the rows of dev "
    "stay as they are."
)


@dataclass(frozen=True)
class Contradictions:
    """How many texts have rows with different labels, how many rows these are, and the first of them."""

    texts: int
    rows: int
    examples: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]  # text, and how often it has each label

    def sentence(self) -> str:
        """The count, some examples and the rule."""
        shown = "; ".join(
            f'"{text}" is ' + " and ".join(f"{label} ({count} times)" for label, count in labels)
            for text, labels in self.examples
        )
        count = "1 text has" if self.texts == 1 else f"{self.texts:,} texts have"
        return f"{count} different labels in {self.rows:,} rows of train and dev: {shown}. {RULE}"


def find_contradictions(train: Data, dev: Data | None) -> Contradictions | None:
    """Texts with different labels in train and dev together, in the order in which they occur; None without any."""
    groups: dict[tuple[str, ...], list[tuple[Data, int]]] = {}
    for data in (train, dev) if dev else (train,):
        for row, inputs in enumerate(map(normalise, data.inputs)):
            groups.setdefault(inputs, []).append((data, row))
    gold = {id(data): data.gold for data in (train, dev) if data is not None}
    found = [rows for rows in groups.values() if len(rows) > 1 and len({gold[id(data)][row] for data, row in rows}) > 1]
    show = find_kind(train.kind).show
    examples = []
    for rows in found[:EXAMPLES]:
        data, first = rows[0]
        labels = Counter(_shorten(show(gold[id(data)][row], data.names)) for data, row in rows)
        examples.append((_shorten(" | ".join(data.inputs[first])), tuple(labels.most_common())))
    return Contradictions(len(found), sum(map(len, found)), tuple(examples)) if found else None


def _shorten(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 3] + "..."
