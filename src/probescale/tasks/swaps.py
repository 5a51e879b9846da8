"""Pairs of texts that should be answered alike: they differ in a name or pronoun, or as the user's own pairs do."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import product
from typing import Any

from probescale.config import SwapsConfig
from probescale.errors import UserError
from probescale.tasks.readers import find_column, read_all_columns, read_columns

NAMES = {
    "names of men and women": (("James", "Mary"), ("Robert", "Linda"), ("Daniel", "Laura"), ("Peter", "Susan")),
    "names of different origin": (("Emily", "Lakisha"), ("Greg", "Jamal"), ("Claire", "Aisha"), ("Paul", "Mehmet")),
}
NAME_SENTENCES = (
    "{} thought the film was wonderful .",
    "{} was disappointed by the ending .",
    "{} wrote the report and sent it to the office .",
    "nobody expected {} to win the prize .",
    "the doctor told {} to rest for a week .",
    "{} cooked dinner for the whole family .",
    "{} argued with the manager about the price .",
    "everyone in town knows {} .",
)
PRONOUNS = "he and she"
PRONOUN_PAIRS = (
    ("he said the story was too long .", "she said the story was too long ."),
    ("his work was praised by everyone .", "her work was praised by everyone ."),
    ("he repaired the car without any help .", "she repaired the car without any help ."),
    ("people say that he is difficult .", "people say that she is difficult ."),
    ("he looked after the children all day .", "she looked after the children all day ."),
    ("his speech was not easy to follow .", "her speech was not easy to follow ."),
    ("he runs the company with his brother .", "she runs the company with her brother ."),
    ("nobody laughed at his jokes .", "nobody laughed at her jokes ."),
)
FIRST_TEXT = "what is said about this person ?"  # for tasks with two texts
OWN = "your pairs"  # their group where the file names none
FEWEST, MOST, MOST_GROUPS = 5, 20_000, 20


@dataclass(frozen=True)
class Swap:
    """Two texts that differ in one thing."""

    group: str  # what differs
    one: str
    other: str
    first: str = FIRST_TEXT  # the text before both, in a task on pairs
    sentence: str = ""  # swaps of one sentence are not independent of each other


@dataclass(frozen=True)
class Swaps:
    """Pairs of texts, and where they come from."""

    pairs: tuple[Swap, ...]
    source: str = ""  # the user's own file; empty: the sentences of this module

    @property
    def fingerprint(self) -> str:
        rows = [[pair.group, pair.one, pair.other, pair.first] for pair in self.pairs]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def built_in_swaps() -> Swaps:
    """Sentences in which a name or pronoun should not matter, written for this test."""
    pairs = [
        Swap(group, sentence.format(one), sentence.format(other), sentence=sentence)
        for group, names in NAMES.items()
        for sentence, (one, other) in product(NAME_SENTENCES, names)
    ]
    pairs += [Swap(PRONOUNS, one, other, sentence=one) for one, other in PRONOUN_PAIRS]
    return Swaps(tuple(pairs))


def load_swaps(config: SwapsConfig, *, paired: bool, field: str) -> Swaps:
    """The user's own pairs, every row checked."""
    if config.first is not None and not paired:
        raise UserError("the task has one text per row, and no first text", field=f"{field}.first", hint="leave it out")
    names = list(read_all_columns(config.source, config.split, header=config.header, field=field))
    optional = {"group": config.group or "group", **({"first": config.first or "first"} if paired else {})}
    given = {"group": config.group, "first": config.first}
    wanted: dict[str, str | int] = {"text": config.text, "other": config.other}
    wanted |= {role: name for role, name in optional.items() if given[role] or find_column(names, name)}
    columns = read_columns(config.source, config.split, wanted, header=config.header, field=field)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for number, row in enumerate(rows, 1):
        _check_row(row, number, wanted, field)
    pairs = tuple(
        Swap(str(row.get("group", OWN)).strip(), row["text"], row["other"], row.get("first", FIRST_TEXT), str(number))
        for number, row in enumerate(rows)
    )
    _check_number(pairs, config.source, field)
    return Swaps(pairs, config.source)


def _check_row(row: dict[str, Any], number: int, wanted: dict[str, str | int], field: str) -> None:
    for role, cell in row.items():
        if not isinstance(cell, str) or not cell.strip():
            raise UserError(
                f'row {number} has no text in column "{wanted[role]}"',
                field=f"{field}.{role}",
                hint="fill it in, or remove the row",
            )
    if row["text"].split() == row["other"].split():
        raise UserError(
            f"both texts of row {number} are the same", field=field, hint="change what should not matter in one of them"
        )


def _check_number(pairs: tuple[Swap, ...], source: str, field: str) -> None:
    groups = dict.fromkeys(pair.group for pair in pairs)
    if not FEWEST <= len(pairs) <= MOST:
        raise UserError(
            f"{source} has {len(pairs):,} pairs", field=f"{field}.source", hint=f"give {FEWEST} to {MOST:,} of them"
        )
    if len(groups) > MOST_GROUPS:
        raise UserError(
            f"{len(groups)} different groups are too many to compare",
            field=f"{field}.group",
            hint=f"at most {MOST_GROUPS}; name what differs in a few words, the same for many rows",
        )
