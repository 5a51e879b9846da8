"""Read the texts of `predict`: plain lines, CSV, TSV or JSONL as a stream, Parquet and Arrow as a whole.

Invalid lines are reported, not fatal. Everything else that stands in a row is kept beside the text, to be written with
the answer.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Literal

from probescale.errors import UserError, first_line
from probescale.tasks.readers import find_column, read_file
from probescale.utils.archives import open_unpacked

Format = Literal["lines", "csv", "tsv", "jsonl", "columns"]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "columns",
    ".arrow": "columns",
}
LONGEST_LINE = 16 * 1024 * 1024  # bytes; a longer one is not a text
MANY_BRACKETS = 100  # in a line of JSON; with fewer, nothing is nested too deeply


@dataclass(frozen=True)
class Line:
    """A text to predict, or why the line has none."""

    number: int  # from 1, as editors count
    text: str = ""
    pair: str | None = None
    fault: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)  # all columns or fields of the line; empty for a plain line


def detect_format(path: Path | None) -> Format:
    """The format that the suffix of a file names; plain lines for other suffixes and for standard input."""
    return SUFFIXES.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "lines") if path else "lines"


def open_texts(path: Path | None) -> BinaryIO:
    """A file opened for reading, gzipped or not; None: standard input."""
    if path is None:
        return sys.stdin.buffer
    try:
        return open_unpacked(path)
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} cannot be unpacked: {first_line(error)}", field="FILE") from error


def read_texts(
    stream: BinaryIO,
    kind: Format,
    text: str = "text",
    pair: str | None = None,
    *,
    otherwise: str | None = None,
    header: bool = True,
) -> Iterator[Line]:
    """The lines of a stream, one by one. `text` and `pair`: columns or fields of the texts.

    `otherwise`: the one of the text where there is none called `text`. `header`: whether the first line of a table has
    the names of its columns; otherwise they are "1", "2", ...
    """
    if kind == "lines":
        return (_checked(number, (line,), fault) for number, line, fault in _decoded(stream))
    if kind == "jsonl":
        return (_from_json(number, line, (text, otherwise), pair, fault) for number, line, fault in _decoded(stream))
    return _from_table(stream, "\t" if kind == "tsv" else ",", (text, otherwise), pair, header=header)


def read_whole_table(path: Path, text: str, pair: str | None, *, otherwise: str | None = None) -> Iterator[Line]:
    """The rows of a Parquet or Arrow file, with the same names of columns as in `read_texts`."""
    columns = read_file(path, field="FILE")
    names = list(columns)
    places = _find_places(names, _choose_name(names, (text, otherwise)), pair)
    for number, cells in enumerate(zip(*columns.values(), strict=True), 1):
        row = {name: _as_json(cell) for name, cell in zip(names, cells, strict=True)}
        yield _checked(number, [cells[place] for place in places], row=row)


def _as_json(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """A cell as it can be written again: dates and bytes, also inside of lists, become texts."""
    return cell if isinstance(cell, (str, int, float)) else json.loads(json.dumps(cell, default=str))


def _decoded(stream: BinaryIO) -> Iterator[tuple[int, str, str]]:
    """Number, text and fault of every line; a line that is not UTF-8 keeps its quotation marks, for tables."""
    for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), 1):
        if len(raw) == LONGEST_LINE:
            raise UserError(f"line {number} has no end", field="FILE", hint="give a file with one text per line")
        encoding, fault = "utf-8-sig" if number == 1 else "utf-8", ""
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError as error:
            line, fault = raw.decode(encoding, "replace"), f"not UTF-8: {error.reason} at byte {error.start + 1}"
        yield number, line.rstrip("\r\n"), fault


def _checked(number: int, texts: Sequence[object], fault: str = "", row: Mapping[str, Any] | None = None) -> Line:
    """A line of one text or, where a second one was asked for, of two; both have to be there."""
    if fault:
        return Line(number, fault=fault)
    given = []
    for name, text in zip(("text", "second text"), texts, strict=False):
        if text is None or (isinstance(text, str) and not text.strip()):
            return Line(number, fault=f"no {name}", row=row or {})
        if not isinstance(text, str):
            return Line(number, fault=f"the {name} is no string", row=row or {})
        given.append(text)
    return Line(number, *given, row=row or {})


def _find_unwritable(line: str, row: Mapping[str, Any]) -> str:
    """Why a row could not be written again beside its answer; most lines need no look."""
    if "\\ud" not in line.lower() and line.count("[") + line.count("{") < MANY_BRACKETS:
        return ""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a character (a lone surrogate, \\ud800 to \\udfff)"
    except RecursionError:
        return "not JSON: nested too deeply"
    return ""


def _choose_name(names: Collection[str], wanted: tuple[str, str | None]) -> str:
    """The first of two names, or the second where only that is there."""
    text, otherwise = wanted
    return otherwise if otherwise is not None and otherwise in names and text not in names else text


def _from_json(number: int, line: str, wanted: tuple[str, str | None], pair: str | None, fault: str) -> Line:
    if fault:
        return Line(number, fault=fault)
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Line(number, fault=f"not JSON: {str(error).splitlines()[0]}")
    if not isinstance(row, dict):
        return Line(number, fault="not an object with fields")
    names = [name for name in (_choose_name(row, wanted), pair) if name is not None]
    if fault := _find_unwritable(line, row):
        return Line(number, fault=fault)
    if missing := [name for name in names if name not in row]:
        return Line(number, fault=f'no field "{missing[0]}"', row=row)
    return _checked(number, [row[name] for name in names], row=row)


def _from_table(
    stream: BinaryIO, between: str, wanted: tuple[str, str | None], pair: str | None, *, header: bool
) -> Iterator[Line]:
    faults: dict[int, str] = {}

    def lines() -> Iterator[str]:
        for number, line, fault in _decoded(stream):
            if fault:
                faults[number] = fault
            yield line.replace("\0", "") + "\n"

    csv.field_size_limit(LONGEST_LINE)
    rows = csv.reader(lines(), delimiter=between, quoting=csv.QUOTE_NONE if between == "\t" else csv.QUOTE_MINIMAL)
    first = _next_row(rows) or []
    if 1 in faults or isinstance(first, str):
        raise UserError(
            f"line 1: {faults.get(1, first)}",
            field="FILE",
            hint="give a file in UTF-8 whose first line names its columns",
        )
    names = list(_different(first)) if header else [str(n) for n in range(1, len(first) + 1)]
    places = _find_places(names, _choose_name(names, wanted), pair)
    if not header:
        yield _of_row(1, first, names, places)
    before = rows.line_num
    while (row := _next_row(rows)) is not None:
        number, before = before + 1, rows.line_num
        broken = [faults.pop(line) for line in range(number, before + 1) if line in faults]
        yield _of_row(number, broken[0] if broken else row, names, places)


def _different(names: Sequence[str]) -> Iterator[str]:
    """The names of columns; of several with the same name, the first one keeps it.

    >>> list(_different(["text", "", "", "text"]))
    ['text', '', '.3', 'text.4']
    """
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        free = name
        while free in seen:
            free = f"{free}.{number}"
        seen.add(free)
        yield free


def _find_places(names: Sequence[str], text: str, pair: str | None) -> list[int]:
    """The places of text and second text in a row."""
    places = []
    for column, option in ((text, "--text"), (pair, "--pair")):
        if column is None:
            continue
        name = find_column(names, column)
        if name is None:
            raise UserError(
                f'there is no column "{column}"',
                field=option,
                hint=f"use one of: {', '.join(names[:20])}" if names else "the file is empty",
            )
        places.append(names.index(name))
    return places


def _next_row(rows: Iterator[list[str]]) -> list[str] | str | None:
    """The cells, or what is wrong with them; None at the end."""
    try:
        return next(rows, None)
    except csv.Error as error:
        return f"{str(error).partition(' - ')[0]}; check its quotation marks"


def _of_row(number: int, row: list[str] | str, names: Sequence[str], places: list[int]) -> Line:
    fault, row = (row, []) if isinstance(row, str) else ("", row)
    cells = dict(zip_longest(names, row[: len(names)], fillvalue=""))
    if fault or len(row) != len(names):
        return Line(number, fault=fault or f"{len(row)} fields, the header has {len(names)}", row=cells)
    return _checked(number, [row[place] for place in places], row=cells)
