"""What the values of a column look like: texts, classes, numbers, several labels, lists of words."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from probescale.tasks.cells import is_empty, label_text
from probescale.tasks.label_sets import read_label_lists

MOST = 0.9  # share of the values that decides; the readers refuse the other rows, and name them
FEW = 10  # different whole numbers that are classes, however few rows there are
SEVERAL = 0.05  # share of the rows with more than one label
THIN, DENSE = 5, 50  # rows per whole number: below, the numbers are quantities; above, classes; between, nobody knows

_UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{4}"  # Thai, Burmese, Chinese, ...
_PHRASE = re.compile(rf"\S\s+\S|{_UNSPACED}")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d\d?:\d\d)[T\d:.,+ -]*([AP]M|[A-Z]{1,4})?")
_QUANTITY = re.compile(r"score|rating|similarity|relatedness|grade|points|price|percent|degree|amount", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table, and what its values look like. Empty cells do not count: the readers refuse them."""

    name: str
    values: Sequence[Any]

    @cached_property
    def filled(self) -> list[Any]:
        return [value for value in self.values if not is_empty(value)]

    @property
    def mostly_filled(self) -> bool:
        return 2 * len(self.filled) > len(self.values)

    @cached_property
    def different(self) -> set[str]:
        """The different values as texts, 1.0 and "1" being the same; of lists, their different entries."""
        return {label_text(value) for value in (self.entries if self.lists else self.filled)}

    @cached_property
    def entries(self) -> list[Any]:
        """The entries of all lists that are not empty."""
        return [entry for cell in self.filled if _is_list(cell) for entry in cell if not is_empty(entry)]

    @cached_property
    def lists(self) -> bool:
        return _are_most(map(_is_list, self.filled), len(self.filled))

    @cached_property
    def word_lists(self) -> bool:
        return self.lists and _are_most((isinstance(word, str) for word in self.entries), len(self.entries))

    @cached_property
    def texts(self) -> list[str]:
        """The values that are texts."""
        return [value for value in self.filled if isinstance(value, str)]

    @cached_property
    def strings(self) -> bool:
        return bool(self.texts) and len(self.texts) >= MOST * len(self.filled)

    @cached_property
    def numbers(self) -> list[float]:
        """The values as numbers, without those that are none."""
        numbers = [_number(value) for value in self.filled]
        return [number for number in numbers if number is not None]

    @property
    def numeric(self) -> bool:
        return bool(self.numbers) and len(self.numbers) >= MOST * len(self.filled)

    @cached_property
    def phrases(self) -> bool:
        """Whether most values have several words."""
        return self.strings and 2 * sum(bool(_PHRASE.search(text)) for text in self.texts) > len(self.texts)

    @cached_property
    def dates(self) -> bool:
        if all(isinstance(value, (datetime.date, datetime.time)) for value in self.filled):
            return bool(self.filled)
        return self.strings and all(_DATE.fullmatch(text.strip()) for text in self.texts)

    @cached_property
    def counts_rows(self) -> bool:
        """Whether the values number the rows: 0, 1, 2, ..."""
        whole = [int(number) for number in self.numbers if number.is_integer()]
        return len(whole) == len(self.values) > 2 and whole == list(range(whole[0], whole[0] + len(whole)))

    @property
    def mostly_different(self) -> bool:
        return 2 * len(self.different) > len(self.filled)

    @property
    def may_be_text(self) -> bool:
        """Whether the values can be texts, if the name says that they are."""
        return self.strings and not self.numeric and not self.dates and (self.phrases or self.mostly_different)

    @property
    def is_text(self) -> bool:
        """Whether the values are texts, whatever the name says: mostly different, and of several words."""
        return self.may_be_text and self.phrases and self.mostly_different

    @property
    def may_be_classes(self) -> bool:
        """Whether at least two values repeat, by the rule of the readers."""
        return not self.lists and 2 <= len(self.different) <= max(2, len(self.filled) // 2)

    @cached_property
    def form(self) -> str:
        """What the values are as labels: class, number, labels (several per row), unsure (class or number) or none."""
        if len(self.different) < 2 or self.dates or not _are_labels(self.filled):
            return "none"
        if self.lists or self._several:
            return "labels"
        if self.numeric:
            return self._form_of_numbers()
        return "class" if self.may_be_classes else "none"

    def _form_of_numbers(self) -> str:
        different, rows = len(self.different), len(self.filled)
        if not self.may_be_classes or any(not number.is_integer() for number in self.numbers):
            return "number"
        if different <= FEW:
            return "class"
        if _QUANTITY.search(self.name) or rows < THIN * different:
            return "number"
        return "class" if different <= 2 * FEW or rows >= DENSE * different else "unsure"

    @property
    def _several(self) -> bool:
        """Whether values are joined labels such as a|b, in a noticeable share of the rows.

        Classes whose names happen to have a semicolon are not: labels that are joined occur in several combinations.
        """
        joined = sum(len(split_labels(text)) > 1 for text in self.texts)
        return 0 < joined >= SEVERAL * len(self.filled) and len(self.single_labels) <= len(self.different)

    @property
    def label_names(self) -> set[str]:
        """The different labels, where the user says that a value may be several."""
        return {label for labels in read_label_lists(self.values, field="", column=self.name) for label in labels}

    @property
    def single_labels(self) -> set[str]:
        """The different labels, where a value may be several, such as a|b."""
        return {label for value in self.different for label in split_labels(value)}


def have_equal_lengths(words: Column, tags: Column) -> bool:
    """Whether lists of tags are as long as the lists of words of their rows."""
    rows = zip(words.values, tags.values, strict=True)
    return _are_most((_is_list(a) and _is_list(b) and len(a) == len(b) for a, b in rows), len(words.values))


def _are_most(facts: Iterable[bool], count: int) -> bool:
    return count > 0 and sum(facts) >= MOST * count


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def split_labels(text: str) -> list[str]:
    """The labels of a text such as a|b; commas also stand within labels."""
    return [part.strip() for part in re.split("[|;]", text) if part.strip()]


def _number(value: Any) -> float | None:  # noqa: ANN401 - any cell
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the last for 400 digits
        return None
    return number if math.isfinite(number) else None


def _are_labels(values: Iterable[object]) -> bool:
    return all(isinstance(value, (str, int, float, list, tuple)) for value in values)
