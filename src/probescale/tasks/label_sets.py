"""Several labels per text, however they are written: as lists, as one text such as a|b, or as one column per label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probescale.errors import UserError
from probescale.tasks.cells import is_empty, label_text

SEPARATORS = ("|", ";", ",")  # the first one that a column has is the one that it uses
YES, NO = ("1", "true", "yes", "y", "x"), ("0", "false", "no", "n", "")


def read_label_lists(values: Sequence[Any], *, field: str, column: object) -> list[list[str]]:
    """The labels of every row: of a list, of a text with | ; or , between them, or none of an empty cell."""
    separator = find_separator(values)
    cells = [_split(value, separator) for value in values]
    if bad := [number for number, cell in enumerate(cells, 1) if cell is None]:
        raise UserError(
            f'column "{column}" holds no labels in row {bad[0]}: {values[bad[0] - 1]!r}',
            field=field,
            hint="give a list, or labels separated by | ; or , in one text",
        )
    return [sorted({label_text(label) for label in cell or () if not is_empty(label)}) for cell in cells]


def find_separator(values: Sequence[Any]) -> str | None:
    """The sign between the labels of a text; None where every text is one label.

    >>> find_separator(["a|b, c", "d"]), find_separator(["a, b"]), find_separator(["a"])
    ('|', ',', None)
    """
    texts = [value for value in values if isinstance(value, str)]
    return next((sign for sign in SEPARATORS if any(sign in text for text in texts)), None)


def _split(value: Any, separator: str | None) -> Sequence[Any] | None:  # noqa: ANN401 - any cell
    """The labels of a cell; None for what is neither a list nor a label."""
    if is_empty(value):
        return ()
    if isinstance(value, str):
        return value.split(separator) if separator else (value,)
    cell = value if isinstance(value, (list, tuple)) else (value,)
    return cell if all(isinstance(label, (str, int, float)) or label is None for label in cell) else None


def read_label_columns(columns: Mapping[str, Sequence[Any]], *, field: str, every: bool = True) -> list[list[str]]:
    """The labels of every row, from one column of yes and no per label. `every`: each label has to occur."""
    for name, values in columns.items():
        if bad := [number for number, value in enumerate(values, 1) if _yes_or_no(value) is None]:
            raise UserError(
                f'column "{name}" has {values[bad[0] - 1]!r} in row {bad[0]}: a column per label holds 0 and 1',
                field=field,
                hint="name the columns of the labels, such as label: [toxic, obscene]",
            )
    absent = [name for name, values in columns.items() if every and not any(map(_yes_or_no, values))]
    if absent:
        raise _absence(absent, list(columns), field)
    rows = zip(*columns.values(), strict=True)
    return [[name for name, value in zip(columns, row, strict=True) if _yes_or_no(value)] for row in rows]


def _absence(absent: Sequence[str], every: Sequence[str], field: str) -> UserError:
    """What is wrong with labels that no text has."""
    if len(absent) == len(every):
        return UserError(
            f"no text has any label: the columns {', '.join(every)} hold 0 in every row",
            field=field,
            hint="give rows with labels: 1 in the column of each label that a text has",
        )
    return UserError(
        f'no text has the label "{absent[0]}"' + (f" ({len(absent)} such labels)" if len(absent) > 1 else ""),
        field=field,
        hint=f"leave its column out, or give rows with it; labels that occur: "
        f"{', '.join(name for name in every if name not in absent)}",
    )


def is_yes_or_no(values: Sequence[Any]) -> bool:
    """Whether a column holds 1 in some rows and 0 in the others, in one of the ways that this is written."""
    return {_yes_or_no(value) for value in values} == {True, False}


def _yes_or_no(value: object) -> bool | None:
    text = "" if is_empty(value) else label_text(value).casefold()
    return True if text in YES else False if text in NO else None
