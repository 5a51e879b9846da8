"""Find the texts and the label of rows that have one label each."""

from __future__ import annotations

from collections.abc import Sequence

from probescale.errors import UserError
from probescale.tasks.column_roles.content import Column, have_equal_lengths
from probescale.tasks.column_roles.names import (
    find_pairs,
    is_certain_label_name,
    is_label_name,
    is_opener_name,
    is_text_name,
)
from probescale.tasks.column_roles.table import ColumnName, Table, count_columns, name_option, quote_names
from probescale.tasks.kinds import find_kind


def find_texts(table: Table, without: Sequence[ColumnName | None], pair: str | None) -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is one; `pair` is what the user gives as the second."""
    usable = table.usable([*without, pair])
    named = [c.name for c in usable if is_text_name(c.name) and c.may_be_text]
    other = [c.name for c in usable if c.is_text and not is_label_name(c.name) and c.name not in named]
    found = named or other
    if len(named) == 1 and is_opener_name(named[0]) and pair is None:
        found = [*named, *other]  # the body that goes with this title may have a name that nobody knows
    if not found:
        raise table.error(
            f"no column looks like a text: the columns are {quote_names(table.names)}", "give --text NAME"
        )
    if pair is not None:
        partners = [first for first, second in find_pairs([*found, pair]) if second == pair]
        found = partners if len(partners) == 1 else found
    pairs = find_pairs(found)
    if len(found) == 2 and len(pairs) == 1 and pair is None:
        return pairs[0]
    if len(found) > 1:
        raise table.ask_which("text", found, "--text") if pair else _ask_which_texts(table, found, pairs)
    return found[0], pair


def _ask_which_texts(table: Table, found: list[str], pairs: list[tuple[str, str]]) -> UserError:
    first, second = pairs[0] if pairs else found[:2]
    both = f"{name_option('--text', first)} {name_option('--pair', second)}"
    return table.error(
        f"{count_columns(found)} could be the text: {quote_names(found)}",
        f"give {name_option('--text', first)}, or {both} for {'both' if len(found) == 2 else 'two of them'}",
    )


def find_label(table: Table, without: Sequence[ColumnName | None], kind: str | None) -> str:
    """The column of the label: one that is called label; else one with another name of labels; else by content."""
    usable = table.usable(without)
    certain = [c for c in usable if is_certain_label_name(c.name)]
    named = [c for c in usable if is_label_name(c.name) and c.mostly_filled and c not in certain]
    other = [c for c in usable if c.mostly_filled and c not in certain + named]
    other = [c for c in other if not (is_text_name(c.name) and c.may_be_text)]
    for tier in (certain, named, other):
        fitting = [column.name for column in tier if _fits(column, kind)]
        if len(fitting) > 1:
            raise table.ask_which("label", fitting, "--label")
        if fitting:
            return fitting[0]
    if certain or named:
        raise _refuse_label(table, (certain or named)[0], kind)
    raise table.error(
        f"no column looks like a label: the columns are {quote_names(table.names)}",
        "give --label NAME; a label is a class that several rows share, or a number",
    )


def _fits(column: Column, kind: str | None) -> bool:
    """Whether a column can be the label of a task of this kind; of any kind for None."""
    if kind is None:
        return column.form != "none"
    if not find_kind(kind).named:
        return column.numeric
    return column.may_be_classes or column.form == kind or (kind == "labels" and column.strings)


def choose_kind(table: Table, text: Column, label: Column) -> str:
    """The kind of task that the labels are for."""
    if label.form == "none":
        raise _refuse_label(table, label, None)
    if label.form == "unsure":
        raise table.error(
            f'column "{label.name}" has {len(label.different)} different whole numbers in {len(label.filled):,} rows: '
            "they may be classes or quantities",
            "give --kind class or --kind number",
        )
    if label.lists and text.strings and _have_one_per_word(text, label):
        raise table.error(
            f'column "{label.name}" has one tag per word, but "{text.name}" is not split into words',
            f'write "{text.name}" as a list of words, as long as the list of tags',
        )
    return label.form


def _have_one_per_word(text: Column, tags: Column) -> bool:
    words = Column("", [value.split() if isinstance(value, str) else value for value in text.values])
    return have_equal_lengths(words, tags) and len(words.entries) > len(words.filled)


def _refuse_label(table: Table, label: Column, kind: str | None) -> UserError:
    if not label.filled:
        what = "is empty"
    elif len(label.different) == 1:
        what = f'has the same value in every row: "{next(iter(label.different))}"'
    elif kind is not None and not find_kind(kind).named:
        what = "does not hold numbers"
    else:
        what = (
            f"has {len(label.different):,} different values in {len(label.filled):,} rows: neither classes nor numbers"
        )
    return table.error(
        f'column "{label.name}" {what}', "give --label NAME; a label is a class that several rows share, or a number"
    )
