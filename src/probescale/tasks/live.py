"""Data handed over from Python, written as a JSONL file: from there on it is read and checked as any other file."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.utils.files import write_text

ACCEPTED = (
    "give a pandas DataFrame, a datasets.Dataset, a list of dicts, a list of (text, label) or (text, pair, label) "
    "tuples, a pair of lists (texts, labels), or a list of texts without labels"
)
COLUMNS = {1: ("text",), 2: ("text", "label"), 3: ("text", "pair", "label")}  # of rows without names

Table = dict[str, list[Any]]


def save_rows(rows: object, path: Path, *, field: str) -> Path:
    """Write rows from Python to a .jsonl file, and return its path. The same rows give the same bytes.

    Missing cells are written as null, and the readers refuse them with their usual message.
    """
    columns = _as_columns(rows, field)
    if not columns or not next(iter(columns.values())):
        raise UserError("there are no rows", field=field, hint=ACCEPTED)
    plain = {name: _plain_cells(name, values, field) for name, values in columns.items()}
    lines = [_json_line(dict(zip(plain, row, strict=True))) for row in zip(*plain.values(), strict=True)]
    write_text(path, "\n".join(lines) + "\n")
    return path


def _as_columns(rows: Any, field: str) -> Table:  # noqa: ANN401 - whatever the caller has
    if _is_a(rows, "pandas", "DataFrame"):
        return _name_columns([(name, rows.iloc[:, n].tolist()) for n, name in enumerate(rows.columns)], field)
    if _is_a(rows, "datasets", "Dataset"):
        table = rows.with_format(None)  # plain values, whatever format is set
        return {name: _name_classes(table.features[name], table[name][:]) for name in table.column_names}
    if _is_a(rows, "datasets", "DatasetDict"):
        splits = ", ".join(rows)
        raise UserError(f"a DatasetDict holds several splits: {splits}", field=field, hint='give one: data["train"]')
    if not isinstance(rows, (list, tuple)):
        raise UserError(f"rows cannot be read from {_describe(rows)}", field=field, hint=ACCEPTED)
    if (lists := _read_parallel_lists(rows)) is not None:
        return _join_lists(lists, field)
    return _join_rows(rows, field)


def _is_a(value: object, package: str, name: str) -> bool:
    """Whether a value is of this class or of one derived from it, without importing its package."""
    return any(c.__name__ == name and c.__module__.split(".")[0] == package for c in type(value).__mro__)


def _describe(value: object) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown}" if len(shown) < 60 else f"a {type(value).__name__}"


def _name_columns(columns: Sequence[tuple[object, list[Any]]], field: str) -> Table:
    """Columns under the texts of their names, which may be numbers."""
    names = [str(name) for name, _ in columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f'two columns are called "{twice[0]}"', field=field, hint="rename one of them")
    return {str(name): values for name, values in columns}


def _name_classes(feature: Any, values: list[Any]) -> list[Any]:  # noqa: ANN401 - a feature of datasets
    """Class numbers as their names; None for -1, which stands for no label."""
    inner = getattr(feature, "feature", feature)  # a list of classes for tagging
    if not hasattr(inner, "int2str"):
        return values

    def name(value: Any) -> Any:  # noqa: ANN401 - a class number, or a list of them
        if isinstance(value, list):
            return [name(entry) for entry in value]
        return None if value in (-1, None) else inner.int2str(value)

    return [name(value) for value in values]


def _read_parallel_lists(rows: Sequence[Any]) -> list[list[Any]] | None:
    """The lists of (texts, labels) or (texts, pairs, labels), or None for a list of rows.

    Two lists are never two rows: no task has so few.
    """
    if any(isinstance(part, (str, Mapping)) for part in rows):
        return None
    lists = [_as_list(part) for part in rows]
    given = [part for part in lists if part is not None]
    by_column = isinstance(rows, tuple) and len(rows) in (2, 3)
    by_column = by_column or (len(rows) == 2 and not any(isinstance(part, tuple) for part in rows))
    return given if by_column and len(given) == len(rows) else None


def _as_list(value: Any) -> list[Any] | None:  # noqa: ANN401 - any value
    """The entries of a list, a tuple, a numpy array or a pandas Series; None for another value."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return value.tolist() if _is_a(value, "numpy", "ndarray") or _is_a(value, "pandas", "Series") else None


def _join_lists(lists: list[list[Any]], field: str) -> Table:
    if len({len(values) for values in lists}) > 1:
        lengths = " and ".join(str(len(values)) for values in lists)
        raise UserError(f"the lists have {lengths} entries", field=field, hint="give one label per text")
    return dict(zip(COLUMNS[len(lists)], lists, strict=True))


def _join_rows(rows: Sequence[Any], field: str) -> Table:
    """Columns of rows that are all dicts, all texts, or all tuples of one length."""
    forms = [_row_form(row) for row in rows]
    if bad := [number for number, form in enumerate(forms, 1) if form is None or form != forms[0]]:
        number = bad[0]
        other = f", and row 1 is {_describe(rows[0])}" if number > 1 else ""
        raise UserError(f"row {number} is {_describe(rows[number - 1])}{other}", field=field, hint=ACCEPTED)
    if rows and isinstance(rows[0], Mapping):
        names = list(dict.fromkeys(name for row in rows for name in row))
        return _name_columns([(name, [row.get(name) for row in rows]) for name in names], field)
    cells = [(row,) if isinstance(row, str) else row for row in rows]
    return {name: [row[n] for row in cells] for n, name in enumerate(COLUMNS[len(cells[0])])} if cells else {}


def _row_form(row: object) -> str | int | None:
    """What all rows have to share: "dict", or the number of cells; None for what is no row."""
    if isinstance(row, Mapping):
        return "dict"
    if isinstance(row, str):
        return 1
    return len(row) if isinstance(row, (list, tuple)) and len(row) in (2, 3) else None


def _plain_cells(name: str, values: list[Any], field: str) -> list[Any]:
    try:
        return [_plain(value) for value in values]
    except TypeError as error:
        raise UserError(
            f'column "{name}" holds {error}',
            field=field,
            hint="cells are texts, numbers, or lists of them; leave other columns out",
        ) from error


def _plain(value: Any) -> Any:  # noqa: ANN401 - any cell
    """A cell as JSON knows it; None for NaN, NA and NaT. TypeError names what has no such form."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if _is_a(value, "numpy", "generic"):
        return _plain(value.item())
    if (entries := _as_list(value)) is not None:
        return [_plain(entry) for entry in entries]
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if _is_a(value, "pandas", "NAType") or _is_a(value, "pandas", "NaTType"):
        return None
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):
        return str(value)
    raise TypeError(_describe(value))


def _json_line(row: dict[str, Any]) -> str:
    """A row as one line. Half of a character is written as its number: the readers refuse it, and name the line."""
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row)
    return line
