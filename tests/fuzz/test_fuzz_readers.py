"""Fuzz every type of data file: damaged valid files, and well-formed nonsense."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from helpers.fuzzing import RNG, damaged, fuzz, json_bytes, nonsense, result_or_error
from probescale.config import DataConfig, ProbeTarget, UnlabelledConfig
from probescale.tasks.labelled import load_examples, load_tagged
from probescale.tasks.readers import READERS
from probescale.tasks.sampling import split
from probescale.tasks.unlabelled import load_unlabelled
from probescale.utils.sources import DATA_SUFFIXES

TEXTS = [f"a text, number {n} of é\u202e😀" for n in range(12)]
LABELS = [("good", "bad")[n % 2] for n in range(12)]
TABLE = pa.table({"text": TEXTS, "label": LABELS, "words": [text.split() for text in TEXTS], "number": list(range(12))})


def in_memory(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def arrow_stream(file: io.BytesIO) -> None:
    with ipc.new_stream(file, TABLE.schema) as out:
        out.write_table(TABLE)


CONLLU = "".join(
    f"# text = {n}\n1\tdogs\tdog\tNOUN\tNNS\tNumber=Plur|Case=Nom\t2\tnsubj\t_\t_\n1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n"
    f"2\trun{n}\trun\tVERB\tVBP\t_\t0\troot\t_\tSpaceAfter=No\n2.1\ty\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    for n in range(8)
)
SOUND: dict[str, bytes] = {
    ".csv": b"text,label\n" + "".join(f'"{t}",{la}\n' for t, la in zip(TEXTS, LABELS, strict=True)).encode(),
    ".tsv": b"text\tlabel\n" + "".join(f"{t}\t{la}\n" for t, la in zip(TEXTS, LABELS, strict=True)).encode(),
    ".jsonl": "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()).encode(),
    ".parquet": in_memory(lambda file: parquet.write_table(TABLE, file)),
    ".arrow": in_memory(arrow_stream),
    ".conll": ("dogs N\nrun V\n\n-DOCSTART- -X-\n\ncats N\n" * 6).encode(),
    ".conllu": CONLLU.encode(),
    ".txt": "\n".join(TEXTS).encode(),
}
COLUMNS: dict[str, tuple[Any, Any]] = {".conll": (1, 2), ".txt": (1, 2), ".conllu": ("form", "upos")}
TARGETS: tuple[ProbeTarget, ...] = ("class", "multi", "number")


def test_every_type_is_fuzzed():
    assert set(SOUND) == set(READERS) == set(DATA_SUFFIXES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def train(folder):
    (folder / "good.csv").write_bytes(SOUND[".csv"])
    return load_examples(DataConfig(source=str(folder / "good.csv")), field="task.train")


def read_all(path: Path, suffix: str) -> None:
    """Read a file in every way that its type allows."""
    text, label = COLUMNS.get(suffix, ("text", "label"))
    data = DataConfig(source=str(path), text=text, label=label)
    for target in TARGETS:
        if found := result_or_error(lambda target=target: load_examples(data, field="task.train", target=target)):
            assert found.fingerprint
            first, second = split(found, 0.2, 0) if len(found) > 1 else (found, found)
            assert len(first)
            assert len(second)
    words = data if suffix in COLUMNS else data.model_copy(update={"text": "words", "label": "words"})
    if tagged := result_or_error(lambda: load_tagged(words, field="task.train")):
        assert tagged.fingerprint


@pytest.mark.parametrize("suffix", SOUND)
def test_valid_files_are_read(folder, suffix):
    path = folder / f"sound{suffix}"
    path.write_bytes(SOUND[suffix])
    text, label = COLUMNS.get(suffix, ("text", "label"))
    if suffix in (".conll", ".conllu"):
        assert len(load_tagged(DataConfig(source=str(path), text=text, label=label), field="task.train"))
    elif suffix != ".txt":
        assert len(load_examples(DataConfig(source=str(path)), field="task.train")) == 12


@pytest.mark.parametrize("suffix", SOUND)
@fuzz("data files", 30, rng=RNG)
def test_damaged_files(folder, train, suffix, rng):
    data = damaged(rng, SOUND[suffix])
    path = folder / f"damaged{suffix}"
    path.write_bytes(data)
    read_all(path, suffix)
    more = UnlabelledConfig(source=str(path))
    result_or_error(lambda: load_unlabelled(more, train, train, 0, field="task.unlabelled"))


@pytest.mark.parametrize("suffix", SOUND)
@fuzz("gzipped data files", 15, rng=RNG)
def test_damaged_archives(folder, suffix, rng):
    inside = rng.random() < 0.5
    packed = gzip.compress(damaged(rng, SOUND[suffix]) if inside else SOUND[suffix], 1)
    path = folder / f"damaged{suffix}.gz"
    path.write_bytes(packed if inside else damaged(rng, packed))
    read_all(path, suffix)


@fuzz("JSONL of any values", 60, rng=RNG)
def test_json_of_any_values(folder, rng):
    rows = [{name: nonsense(rng) for name in ("text", "label", "words")} for _ in range(rng.randint(0, 12))]
    path = folder / "any.jsonl"
    path.write_bytes(b"\n".join(json_bytes(row if rng.random() < 0.95 else nonsense(rng)) for row in rows))
    read_all(path, ".jsonl")


CELLS = st.sampled_from(
    ["", "a", "b", "1", "1.0", "-0", "NaN", "9" * 5000, "1e999", '"', "'", "#", "-DOCSTART-", "\0", "😀", "_", "|", "="]
)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".conll", ".conllu"])
@fuzz(
    "tables of any cells",
    15,
    rows=st.lists(st.lists(CELLS | st.text(max_size=4), max_size=11), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
)
def test_tables_of_any_cells(folder, suffix, rows, end):
    between = "," if suffix == ".csv" else "\t"
    head = {".csv": "text,label,words", ".tsv": "text\tlabel\twords"}.get(suffix, "")
    path = folder / f"any{suffix}"
    path.write_bytes(end.join([head, *(between.join(row) for row in rows)]).encode(errors="surrogatepass"))
    read_all(path, suffix)


TYPES: list[pa.DataType] = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.large_string(),
    pa.binary(), pa.date32(), pa.timestamp("ns"), pa.time64("us"), pa.duration("s"), pa.decimal128(30, 2),
    pa.list_(pa.string()), pa.list_(pa.int64()), pa.struct([("a", pa.string())]), pa.map_(pa.string(), pa.int64()),
    pa.dictionary(pa.int8(), pa.string()),
]  # fmt: skip
LARGE: list[Any] = [
    None,
    True,
    1,
    -1,
    2**63 - 1,
    2**64 - 1,
    0.5,
    float("nan"),
    float("inf"),
    "a",
    "",
    b"\xff",
    ["a", None],
    [1],
    {"a": "b"},
]


def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """The values that have this type."""
    found = []
    for value in values:
        try:
            found.append(pa.scalar(value, type=kind).as_py())
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            found.append(None)
    return pa.array(found, kind)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@fuzz(
    "columns of any type",
    20,
    types=st.lists(st.sampled_from(TYPES), min_size=3, max_size=3),
    values=st.lists(st.sampled_from(LARGE), max_size=12),
    names=st.permutations(["text", "label", "words"]) | st.just(["text", "label", "text"]),
)
def test_columns_of_any_type(folder, suffix, types, values, names):
    table = pa.Table.from_arrays([column(kind, values) for kind in types], names=names)
    path = folder / f"typed{suffix}"
    if suffix == ".parquet":
        try:
            parquet.write_table(table, path)
        except pa.ArrowException:
            return  # some types have no place in Parquet
    else:
        with ipc.new_stream(path, table.schema) as out:
            out.write_table(table)
    read_all(path, suffix)
