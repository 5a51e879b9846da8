"""Writing embeddings as they come: an .npy matrix or a Parquet file. Memory does not grow with the number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from probescale.deploy.inference import TRIED, InferenceModel
from probescale.deploy.predict import CHUNK, Prediction
from probescale.errors import UserError
from probescale.tasks.kinds import Kind
from probescale.utils.files import atomic_file

VECTORS = (".npy", ".parquet")  # files of embeddings


def refuse_without_vectors(kind: Kind) -> None:
    """Refuse files of embeddings for a model that gives labels."""
    if not kind.encodes:
        raise UserError("only embeddings are written as .npy or .parquet", field="--out", hint="use .jsonl or .csv")


def write_vectors(model: InferenceModel, predictions: Iterable[Prediction], path: Path) -> None:
    """The embeddings of all lines: as a matrix (.npy), with NaN for lines without one; or with their texts (.parquet).

    The file appears when it is complete.
    """
    width = model.run(dict(model.tokenizer(list(TRIED), padding=True, return_tensors="np"))).shape[-1]
    with atomic_file(path) as partial:
        (_write_matrix if path.suffix == ".npy" else _write_table)(predictions, partial, width)


def _write_matrix(predictions: Iterable[Prediction], path: Path, width: int) -> None:
    """(lines, width) float32. The number of rows in its header is written last; numpy leaves room for it."""
    with path.open("wb") as file:
        _write_header(file, 0, width)
        start, rows = file.tell(), 0
        for chunk in _chunks(predictions):
            vectors = [one.rendered.fields["embedding"] if one.rendered else [np.nan] * width for one in chunk]
            file.write(np.array(vectors, "<f4").tobytes())
            rows += len(chunk)
        file.seek(0)
        _write_header(file, rows, width)
        assert file.tell() == start


def _write_header(file: object, rows: int, width: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]


def _write_table(predictions: Iterable[Prediction], path: Path, width: int) -> None:
    """The columns line, text and embedding; lines without an embedding have none."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"line": pa.int64(), "text": pa.string(), "embedding": pa.list_(pa.float32())}
    with parquet.ParquetWriter(path, pa.schema(columns.items())) as table:
        for chunk in _chunks(predictions):
            vectors = [one.rendered.fields["embedding"] if one.rendered else None for one in chunk]
            values = ([one.number for one in chunk], [one.text for one in chunk], vectors)
            table.write_table(pa.table(dict(zip(columns, values, strict=True)), schema=table.schema))


def _chunks(predictions: Iterable[Prediction]) -> Iterator[list[Prediction]]:
    rest = iter(predictions)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
