"""Read the texts of `predict`, as a stream: plain lines, CSV, TSV or JSONL. Invalid lines are reported, not fatal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from probescale.errors import UserError

Format = Literal["lines", "csv", "tsv", "jsonl"]
SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
LONGEST_LINE = 16 * 1024 * 1024  # bytes; a longer one is not a text


@dataclass(frozen=True)
class Line:
    """A text to predict, or why the line has none."""

    number: int  # from 1, as editors count
    text: str = ""
    pair: str | None = None
    fault: str = ""


def detect_format(path: Path | None) -> Format:
    """The format that the suffix of a file names; plain lines for other suffixes and for standard input."""
    return SUFFIXES.get(path.suffix.lower(), "lines") if path else "lines"


def read_texts(stream: BinaryIO, kind: Format, text: str = "text", pair: str | None = None) -> Iterator[Line]:
    """The lines of a stream, one by one. `text` and `pair`: columns or fields of the texts."""
    if kind == "lines":
        return (_checked(number, line, None, fault) for number, line, fault in _decoded(stream))
    if kind == "jsonl":
        return (_from_json(number, line, text, pair, fault) for number, line, fault in _decoded(stream))
    return _from_table(stream, "\t" if kind == "tsv" else ",", text, pair)


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


def _checked(number: int, text: object, pair: object, fault: str = "") -> Line:
    if fault:
        return Line(number, fault=fault)
    if not isinstance(text, str) or not text.strip():
        return Line(number, fault="no text" if text in (None, "") or isinstance(text, str) else "the text is no string")
    if pair is not None and not isinstance(pair, str):
        return Line(number, fault="the second text is no string")
    if any("\ud800" <= letter <= "\udfff" for letter in text + (pair or "")):
        return Line(number, fault="half of a character (a lone surrogate, \\ud800 to \\udfff)")
    return Line(number, text, pair)


def _from_json(number: int, line: str, text: str, pair: str | None, fault: str) -> Line:
    if fault:
        return Line(number, fault=fault)
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Line(number, fault=f"not JSON: {str(error).splitlines()[0]}")
    if not isinstance(row, dict):
        return Line(number, fault="not an object with fields")
    if missing := [name for name in (text, pair) if name is not None and name not in row]:
        return Line(number, fault=f'no field "{missing[0]}"')
    return _checked(number, row[text], row[pair] if pair else None)


def _from_table(stream: BinaryIO, between: str, text: str, pair: str | None) -> Iterator[Line]:
    faults: dict[int, str] = {}

    def lines() -> Iterator[str]:
        for number, line, fault in _decoded(stream):
            if fault:
                faults[number] = fault
            yield line.replace("\0", "") + "\n"

    csv.field_size_limit(LONGEST_LINE)
    rows = csv.reader(lines(), delimiter=between, quoting=csv.QUOTE_NONE if between == "\t" else csv.QUOTE_MINIMAL)
    header = _next_row(rows) or []
    if 1 in faults or isinstance(header, str):
        raise UserError(
            f"line 1: {faults.get(1, header)}",
            field="FILE",
            hint="give a file in UTF-8 whose first line names its columns",
        )
    places = {}
    for name in (text, pair) if pair else (text,):
        if name not in header:
            raise UserError(
                f'there is no column "{name}"',
                field="--pair" if name == pair else "--text",
                hint=f"use one of: {', '.join(header[:20])}" if header else "the file is empty",
            )
        places[name] = header.index(name)
    before = rows.line_num
    while (row := _next_row(rows)) is not None:
        number, before = before + 1, rows.line_num
        broken = [faults.pop(line) for line in range(number, before + 1) if line in faults]
        yield _of_row(number, broken[0] if broken else row, len(header), [*places.values()])


def _next_row(rows: Iterator[list[str]]) -> list[str] | str | None:
    """The cells, or what is wrong with them; None at the end."""
    try:
        return next(rows, None)
    except csv.Error as error:
        return f"{str(error).partition(' - ')[0]}; check its quotation marks"


def _of_row(number: int, row: list[str] | str, fields: int, places: list[int]) -> Line:
    if isinstance(row, str):
        return Line(number, fault=row)
    if len(row) != fields:
        return Line(number, fault=f"{len(row)} fields, the header has {fields}")
    return _checked(number, row[places[0]], row[places[1]] if len(places) > 1 else None)
