"""Find the labels of a table that has one column of 0 and 1 for every label, as tables of toxic comments do."""

from __future__ import annotations

from collections.abc import Sequence

from probescale.tasks.column_roles.content import Column
from probescale.tasks.column_roles.names import is_certain_label_name, is_label_name
from probescale.tasks.column_roles.table import ColumnName, Table
from probescale.tasks.label_sets import is_yes_or_no

CERTAIN = 3  # columns of 0 and 1 that leave no doubt; of two, one may be the label and the other a remark


def find_given_labels(table: Table, label: ColumnName) -> tuple[str, ...]:
    """The columns that a user names with commas between them; empty where that is one column or none."""
    names = [name.strip() for name in str(label).split(",")]
    if len(names) == 1 or str(label) in table.columns:
        return ()
    return tuple(str(table.name(name)) for name in names)


def find_label_columns(table: Table, without: Sequence[ColumnName | None], kind: str | None) -> tuple[str, ...]:
    """The columns of 0 and 1, if they are the labels: at least three, or two where the user says so; else none.

    A column that is called label, or one with more values and another name of labels, comes first.
    """
    if kind not in (None, "labels"):
        return ()
    usable = table.usable(without)
    found = [column.name for column in usable if is_yes_or_no(column.values)]
    if len(found) < (CERTAIN if kind is None else 2) or any(_is_label(column, found) for column in usable):
        return ()
    return tuple(found)


def _is_label(column: Column, found: Sequence[str]) -> bool:
    if is_certain_label_name(column.name):
        return True
    return column.name not in found and is_label_name(column.name) and column.form != "none"
