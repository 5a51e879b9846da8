"""The columns of a source, and the errors that ask which of them to use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probescale.errors import Problems, UserError, did_you_mean
from probescale.tasks.cells import label_text
from probescale.tasks.column_roles.content import Column
from probescale.tasks.column_roles.names import is_ignored_name, is_known_name, is_label_name
from probescale.tasks.readers import find_column, is_delimited, read_all_columns

ColumnName = str | int  # CoNLL columns are numbers
SHOWN = 8  # columns that a message names


@dataclass(frozen=True)
class Table:
    """The columns of a source by name, and the command-line argument that errors about them name."""

    source: str
    field: str
    columns: dict[str, Column]

    def __getitem__(self, column: ColumnName) -> Column:
        return self.columns[str(column)]

    def name(self, column: ColumnName) -> ColumnName:
        """The name of a column that is given by its name or its number; an unknown one as it is."""
        return column if str(column) in self.columns else find_column(self.names, column) or column

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def usable(self, without: Iterable[ColumnName | None] = ()) -> list[Column]:
        """The columns that may be learned from: no ids, dates or row numbers, and none of `without`."""
        left_out = {str(column) for column in without}
        columns = [c for name, c in self.columns.items() if name not in left_out and not is_ignored_name(name)]
        return [c for c in columns if not c.dates and (is_label_name(c.name) or not c.counts_rows)]

    def error(self, message: str, hint: str) -> UserError:
        return UserError(message, field=self.field, hint=hint)

    def ask_which(self, role: str, found: Sequence[str], option: str) -> UserError:
        """The error for several columns that could have one role."""
        options = join_names([name_option(option, name) for name in found], "or")
        return self.error(f"{count_columns(found)} could be the {role}: {quote_names(found)}", f"give {options}")

    def check_given(self, given: dict[str, str]) -> None:
        """Refuse columns ({role: column}) that do not exist, and one column in two roles."""
        missing = [
            UserError(
                f'column "{column}" is not in {self.source}.{did_you_mean(column, self.columns)}',
                field=f"--{role}",
                hint=f"use one of: {', '.join(self.columns)}",
            )
            for role, column in given.items()
            if column not in self.columns
        ]
        if missing:
            raise missing[0] if len(missing) == 1 else Problems(missing)
        roles = {column: role for role, column in given.items()}
        for role, column in given.items():
            if (other := roles[column]) != role:
                raise UserError(
                    f'column "{column}" is given as {role} and as {other}',
                    field=f"--{other}",
                    hint="name another column",
                )

    def refuse_missing_header(self) -> None:
        """Refuse a delimited file whose first line is a row of data."""
        if is_delimited(self.source) and _looks_like_row(self.columns):
            raise self.error(
                f"{self.source} looks as if it had no header: its first line is {quote_names(self.names)}",
                "give --no-header: the columns are then 1, 2, ...; if these are names, give --text NAME --label NAME",
            )

    def refuse_single_column(self) -> None:
        """Refuse a table without room for texts and labels; a wrong separator is the usual cause."""
        if len(self.columns) > 1:
            return
        hint = "give a table with a column of texts (--text NAME) and a column of labels (--label NAME)"
        if separators := [sign for sign in (";", "\t", "|", ",") if sign in self.names[0]]:
            shown = {"\t": "tabs", ",": "commas"}.get(separators[0], f'"{separators[0]}"')
            hint = f"its columns seem to be separated by {shown}: save it with commas as .csv, or with tabs as .tsv"
        raise self.error(f"{self.source} has one column only: {quote_names(self.names)}", hint)


def read_table(source: str, split: str | None, *, header: bool = True, field: str) -> Table:
    """All columns of a file or hub data set."""
    try:
        columns = read_all_columns(source, split, header=header, field=field)
    except UserError as error:  # the source is the argument itself here, not a setting of a section
        field = "--no-header" if error.field == f"{field}.header" else error.field.removesuffix(".source")
        raise UserError(error.message, field=field, hint=error.hint) from error
    return Table(source, field, {name: Column(name, values) for name, values in columns.items()})


def _looks_like_row(columns: dict[str, Column]) -> bool:
    """Whether the names of the columns are cells of a first row."""
    names = list(columns)
    numbered = [[str(number + first) for number in range(len(names))] for first in (0, 1)]  # written by pandas
    if names in numbered or any(is_known_name(name) for name in names):
        return False
    return any(_looks_like_cell(column) for column in columns.values() if column.name.strip())


def _looks_like_cell(column: Column) -> bool:
    """Whether the name of a column is a number above numbers, a label that occurs further down, or a sentence."""
    if column.numeric and Column("", [column.name]).numeric:
        return True
    if column.may_be_classes and label_text(column.name) in column.different:
        return True
    return column.is_text and len(column.name.split()) > 5


def name_option(option: str, column: str) -> str:
    """An option as it is typed in a shell: --text 'Review Text'."""
    return f"{option} {shlex.quote(column)}"


def count_columns(names: Sequence[str]) -> str:
    """ "two columns", "12 columns"."""
    return f"{ {2: 'two', 3: 'three', 4: 'four'}.get(len(names), len(names)) } columns"


def quote_names(names: Sequence[str]) -> str:
    """The names in quotes, the last one after "and"."""
    return join_names([f'"{name}"' for name in names], "and")


def join_names(names: Sequence[str], word: str) -> str:
    """The names with commas, and a word before the last one; of many names, the first ones.

    >>> join_names(["a", "b", "c"], "or")
    'a, b or c'
    """
    shown = list(names) if len(names) <= SHOWN else [*names[: SHOWN - 1], f"{len(names) - SHOWN + 1} more"]
    return f" {word} ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)
