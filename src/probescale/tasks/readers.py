"""Files and hub data sets as plain columns, exactly as written: types are not guessed, nothing is read as missing.

A reader takes a path and returns {column: values}. A file type is added by one function with the decorator `reads`.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import conllu
import pyarrow as pa
from conllu.exceptions import ParseException
from pyarrow import csv, ipc, parquet

from probescale.errors import Problems, UserError, did_you_mean, first_line
from probescale.tasks.expansion import CELL, measure_columns, measure_stream, refuse_expansion
from probescale.utils.archives import MAX_RATIO, max_unpacked_size, open_unpacked, read_gzip
from probescale.utils.files import format_size
from probescale.utils.progress import console
from probescale.utils.sources import hide_hub_bars_outside_terminals, hub_unreachable, local_path

Columns = dict[str, list[Any]]
Reader = Callable[[Path], Columns]
READERS: dict[str, Reader] = {}
BLOCK, MAX_BLOCK = 1 << 20, (1 << 31) - 1  # bytes of a CSV file that Arrow parses at a time
BATCH = 1 << 16  # rows of a Parquet file that are read at a time
TEXTS, PREFIXES = "BYTE_ARRAY", "DELTA_BYTE_ARRAY"  # a type of Parquet, and an encoding with shared beginnings


def reads(*suffixes: str) -> Callable[[Reader], Reader]:
    """Register a reader for files with these suffixes."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(suffixes, reader))
        return reader

    return register


def read_columns(
    source: str, split: str | None, wanted: dict[str, str | int], *, header: bool = True, field: str
) -> Columns:
    """The wanted columns ({role: column}) of a source, under their roles. Columns are given by name or number."""
    columns = read_all_columns(source, split, header=header, field=field)
    names = {role: find_column(list(columns), column) for role, column in wanted.items()}
    tip = "; if its first line is a row, set header: false" if header and is_delimited(source) else ""
    missing = [
        UserError(
            f'column "{column}" is not in {source}.{did_you_mean(str(column), columns)}',
            field=f"{field}.{role}",
            hint=f"use one of: {', '.join(columns)}{tip}",
        )
        for role, column in wanted.items()
        if names[role] is None
    ]
    if missing:
        raise Problems(missing)
    return {role: columns[name] for role, name in names.items() if name is not None}


def find_column(names: Sequence[str], column: str | int) -> str | None:
    """The name of a column that is given by its name, or by its number from 1; None where there is no such column.

    >>> find_column(["text", "label"], 2), find_column(["0", "1"], "1"), find_column(["text"], "2")
    ('label', '1', None)
    """
    if str(column) in names:
        return str(column)
    number = int(column) if str(column).isdecimal() and len(str(column)) < 10 else 0
    return names[number - 1] if 0 < number <= len(names) else None


def is_delimited(source: str) -> bool:
    """Whether a source is a CSV or TSV file, whose first line has names or is a row."""
    return re.search(r"\.[ct]sv(\.gz)?(#|$)", source.lower()) is not None


def read_all_columns(source: str, split: str | None, *, header: bool = True, field: str) -> Columns:
    """Every column of a source, under its own name; without a `header`, under its number from 1."""
    path = local_path(source, field=f"{field}.source")
    if path is not None and split is not None:
        raise UserError(f'"{split}" is the split of a hub data set, but {source} is a file', field=f"{field}.split")
    if not header and not is_delimited(source):
        raise UserError(
            f"{source} is no CSV or TSV file: it has no header that could be missing",
            field=f"{field}.header",
            hint="leave it out",
        )
    if path is None:
        return _read_hub(source, split, field=field)
    return read_file(path, header=header, field=f"{field}.source")


def read_file(path: Path, *, header: bool = True, field: str) -> Columns:
    """Every column of a local file; `field`: what names it."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in READERS:
        raise UserError(
            f'"{path.name}" has an unknown file type', field=field, hint=f"use one of: {', '.join(READERS)}"
        )
    if not path.is_file():
        raise UserError(f"{path} is not a file", field=field)
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty", field=field, hint="give a file with a header and rows")
    try:
        _refuse_utf16(path)
        columns = READERS[suffix](path) if header else _read_delimited(path, _PARSING[suffix], header=False)
    except (pa.ArrowException, OSError, EOFError, ValueError, zlib.error, RecursionError, ParseException) as error:
        hint = "save it as UTF-8" if isinstance(error, UnicodeError) or "UTF8" in str(error) else ""
        raise UserError(f"{path} cannot be read: {first_line(error)}", field=field, hint=hint) from error
    if not columns or not next(iter(columns.values())):
        raise UserError(f"{path} is empty: it has no rows", field=field)
    return columns


def _refuse_utf16(path: Path) -> None:
    """Refuse UTF-16, which some programs call "Unicode": it would be read as letters with zeros between them."""
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise UnicodeError("it is UTF-16")


@reads(".csv")
def read_csv(path: Path) -> Columns:
    """Comma-separated with a header; values are taken as written."""
    return _read_delimited(path, _PARSING[".csv"])


@reads(".tsv")
def read_tsv(path: Path) -> Columns:
    """Tab-separated as GLUE writes it: quotes are ordinary characters."""
    return _read_delimited(path, _PARSING[".tsv"])


_PARSING = {
    ".csv": csv.ParseOptions(newlines_in_values=True),
    ".tsv": csv.ParseOptions(delimiter="\t", quote_char=False),
}


def _read_delimited(path: Path, parsing: csv.ParseOptions, *, header: bool = True) -> Columns:
    # Not from the file itself: asking Arrow for the names leaves a thread behind that keeps reading. It would take
    # bytes from the next file that gets the same descriptor.
    content = pa.py_buffer(read_gzip(path) if path.suffix == ".gz" else path.read_bytes())
    try:
        return _parse_delimited(content, parsing, BLOCK, header=header)
    except pa.ArrowInvalid as error:
        if "straddling object" not in str(error):
            raise
        # A cell is longer than a block.
        return _parse_delimited(content, parsing, min(len(content), MAX_BLOCK), header=header)


def _parse_delimited(content: pa.Buffer, parsing: csv.ParseOptions, block: int, *, header: bool) -> Columns:
    reading = csv.ReadOptions(block_size=block, autogenerate_column_names=not header)
    options = {"read_options": reading, "parse_options": parsing}
    names = csv.open_csv(pa.BufferReader(content), **options).schema.names
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f'two columns are called "{twice[0]}"')
    as_written = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    table = csv.read_csv(pa.BufferReader(content), convert_options=as_written, **options)
    return (table if header else table.rename_columns([str(n + 1) for n in range(len(names))])).to_pydict()


@reads(".jsonl")
def read_jsonl(path: Path) -> Columns:
    """One JSON object per line; fields that a line lacks are None."""
    with open_text(path) as file:
        rows = [_json_row(line, number) for number, line in enumerate(file, 1) if line.strip()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    refuse_expansion(len(rows) * len(names) * CELL, max_unpacked_size(path))
    return {name: [row.get(name) for row in rows] for name in names}


def _json_row(line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number} is not JSON: {error}") from error
    if "\\ud" in line.lower() and not _is_text(row):
        raise ValueError(f"line {number} has half of a character (a lone surrogate, \\ud800 to \\udfff)")
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not a JSON object")
    return row


def _is_text(row: object) -> bool:
    """Whether the row can be written as UTF-8."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@reads(".parquet")
def read_parquet(path: Path) -> Columns:
    """Columns by name; a file that claims far more rows than its size allows is refused."""
    about, most = parquet.read_metadata(path), max_unpacked_size(path)
    if about.num_rows > most // MAX_RATIO:  # a column with one value takes no space, however long it is
        raise ValueError(f"it says that it has {about.num_rows:,} rows, and has {format_size(path.stat().st_size)}")
    refuse_expansion(about.num_rows * about.num_columns * CELL, most)
    columns: Columns = {name: [] for name in about.schema.to_arrow_schema().names}
    size = 0
    for table in _read_row_groups(path, about, most):
        size = _extend(columns, table, size, most)
    return columns


def _read_row_groups(path: Path, about: parquet.FileMetaData, most: int) -> Iterator[pa.Table]:
    """The rows of a file, in parts of which none takes much more than `most` bytes."""
    groups = [[about.row_group(g).column(c) for c in range(about.num_columns)] for g in range(about.num_row_groups)]
    chunks = [chunk for group in groups for chunk in group]
    refuse_expansion(sum(chunk.total_uncompressed_size for chunk in chunks), most)
    described = {about.schema.column(number).path for number in range(about.num_columns)}
    if unknown := next((chunk.path_in_schema for chunk in chunks if chunk.path_in_schema not in described), None):
        raise ValueError(f'its schema does not describe its column "{unknown}"')
    shared = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page and chunk.physical_type == TEXTS}
    with parquet.ParquetFile(path, read_dictionary=sorted(shared)) as compact, parquet.ParquetFile(path) as plain:
        for number, group in enumerate(groups):
            # Texts that share a dictionary stay so until their size is known.
            table = None if any(PREFIXES in chunk.encodings for chunk in group) else _read_compact(compact, number)
            if table is not None:
                yield table
                continue
            longest = max(chunk.total_uncompressed_size for chunk in group)  # of a text: all of its column
            for batch in plain.iter_batches(max(min(BATCH, most // max(longest, 1)), 1), row_groups=[number]):
                yield pa.Table.from_batches([batch])


def _read_compact(file: parquet.ParquetFile, number: int) -> pa.Table | None:
    """A row group with its dictionaries; None where Arrow cannot: lists of texts with more than one dictionary."""
    try:
        return file.read_row_group(number)
    except pa.ArrowNotImplementedError:
        return None


@reads(".arrow")
def read_arrow(path: Path) -> Columns:
    """The stream format that `datasets` saves."""
    most, columns = max_unpacked_size(path), Columns()
    with pa.memory_map(str(path)) as file:
        measure_stream(ipc.MessageReader.open_stream(file), most)
        file.seek(0)
        _extend(columns, ipc.open_stream(file).read_all(), 0, most)
    return columns


def _extend(columns: Columns, table: pa.Table, size: int, most: int) -> int:
    """Append the rows of a table to columns of `size` bytes, and return their new size; refused above `most`.

    Arrow trusts the offsets in a file, and would read beyond its end if they were not validated.
    """
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError("two columns have the same name")
    table.validate(full=True)
    size = measure_columns(table.columns, size, most)
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        columns.setdefault(name, []).extend(plain.to_pylist())
    return size


@reads(".conll", ".txt")
def read_conll(path: Path) -> Columns:
    """One word per line, blank lines between sentences. Columns are "1", "2", ...; a value is a sentence's list."""
    with open_text(path) as file:
        lines = file.read().split("\n")
    delimiter = "\t" if any("\t" in line for line in lines) else None  # None: any blanks
    sentences: list[list[list[str]]] = [[]]
    width = 0
    for number, line in enumerate(lines, 1):
        cells = line.split(delimiter)
        if not line.strip() or cells[0] == "-DOCSTART-":
            sentences.append([])
        elif width in (0, len(cells)) and not (width == 0 and line.startswith("# ")):
            width = len(cells)
            sentences[-1].append(cells)
        elif not line.startswith("#"):  # a comment has another width than the rows; a "#" token has not
            raise ValueError(f"line {number} has {len(cells)} columns, the lines before it {width}")
    kept = [sentence for sentence in sentences if sentence]
    return {str(c + 1): [[cells[c] for cells in sentence] for sentence in kept] for c in range(width)}


_CONLLU = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel")


@reads(".conllu")
def read_conllu(path: Path) -> Columns:
    """Universal Dependencies. Columns are form, lemma, upos, xpos, head, deprel, and one for every feature (Tense).

    A value is the list of a sentence, with None where a word has no value. Multiword ranges and empty nodes are left
    out: they are not words.
    """
    with open_text(path) as file:
        sentences = [
            [token for token in sentence if isinstance(token["id"], int)] for sentence in conllu.parse_incr(file)
        ]
    if bad := [token for s in sentences for token in s if any(n not in token for n in _CONLLU)]:
        raise ValueError(f'"{bad[0]["form"]}" has {len(bad[0])} columns, and CoNLL-U has ten')
    features = sorted({name for sentence in sentences for token in sentence for name in token["feats"] or {}})
    refuse_expansion(sum(map(len, sentences)) * len(features) * CELL, max_unpacked_size(path))
    columns = {n: [[token[n] for token in s] for s in sentences] for n in _CONLLU if n not in ("head", "feats")}
    columns["head"] = [[str(token["head"]) for token in s] for s in sentences]
    for name in features:
        columns[name] = [[(token["feats"] or {}).get(name) for token in s] for s in sentences]
    return columns


def open_text(path: Path) -> TextIO:
    """A text file opened for reading, gzipped or not."""
    return io.TextIOWrapper(open_unpacked(path), encoding="utf-8-sig")


def _read_hub(source: str, split: str | None, *, field: str) -> Columns:
    """A hub data set, `owner/name` or `owner/name:config`. Class numbers become their names."""
    import datasets
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    name, _, config = source.partition(":")
    hide_hub_bars_outside_terminals()
    if not console.is_terminal:
        datasets.disable_progress_bars()
    try:
        if not constants.HF_HUB_OFFLINE:
            HfApi().dataset_info(name, timeout=10)  # fails at once, where `datasets` would retry for half a minute
        table = datasets.load_dataset(name, config or None, split=split or "train")
    except (HfHubHTTPError, HFValidationError, DatasetNotFoundError) as error:
        raise UserError(
            f'"{source}" is neither a local file nor a data set on the hub',
            field=f"{field}.source",
            hint="check the name; private data sets need `hf auth login`",
        ) from error
    except (ValueError, RuntimeError) as error:  # RuntimeError: the data set is a script, which is never run
        raise UserError(
            f"{source}: {str(error).splitlines()[0]}", field=field, hint="check config and split"
        ) from error
    except Exception as error:  # the hub client may use any HTTP library; its module shows a network fault
        if isinstance(error, OSError) or type(error).__module__.startswith("http"):
            raise hub_unreachable(source, field=f"{field}.source") from error
        raise
    return {column: _class_names(table, column) for column in table.column_names}


def _class_names(table: Any, column: str) -> list[Any]:  # noqa: ANN401 - datasets.Dataset, imported late
    feature = table.features[column]
    inner = getattr(feature, "feature", feature)  # a list of classes for tagging
    values = table[column][:]
    if not hasattr(inner, "int2str"):
        return values
    return [inner.int2str(value) if value not in (-1, None) else None for value in values]
