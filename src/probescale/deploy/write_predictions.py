"""Writing predictions as they come: JSON lines or CSV, and a count of the lines that have none."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from probescale.deploy.predict import CHUNK, Prediction
from probescale.errors import UserError
from probescale.tasks.kinds import Kind
from probescale.utils.files import atomic_file
from probescale.utils.sanitize import escape_json


class FaultCounter:
    """Counts and reports the lines without a prediction, on their way to a writer."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.report, self.count = report, 0

    def watch(self, predictions: Iterable[Prediction]) -> Iterator[Prediction]:
        """The same predictions, one by one."""
        for prediction in predictions:
            if prediction.fault:
                self.count += 1
                self.report(f"line {prediction.number}: {prediction.fault}")
            yield prediction


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A file that appears when it is complete; standard output where there is no path."""
    if path is None:
        yield sys.stdout
        return
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as target:
        yield target


def write_jsonl(predictions: Iterable[Prediction], target: TextIO, kind: Kind) -> None:
    """One JSON object per line: what stands in the line, and the answer."""
    for prediction in predictions:
        target.write(escape_json(json.dumps(prediction.record(), ensure_ascii=False)) + "\n")


def write_csv(predictions: Iterable[Prediction], target: TextIO, kind: Kind) -> None:
    """A table with a header: the columns of the input, then the answer, which is empty where there is none.

    Fields of JSON lines are the columns that the first thousand lines have.
    """
    rest = iter(predictions)
    first = list(islice(rest, CHUNK))
    given = list(dict.fromkeys(name for one in first for name in one.row)) or ["text"]
    answer = [name for name in kind.answers if name in (kind.answers[0], "probability")]
    table = csv.writer(target, lineterminator="\n")
    table.writerow(["line", *given, *answer])
    for prediction in chain(first, rest):
        row, rendered = prediction.row or {"text": prediction.text}, prediction.rendered
        if later := [name for name in row if name not in given and prediction.row]:
            raise UserError(
                f'line {prediction.number} has the field "{later[0]}", and none of the first {CHUNK:,} lines has it',
                field="--format",
                hint="use jsonl",
            )
        cells = (rendered.cell, rendered.probability) if rendered else ("", None)
        table.writerow([prediction.number, *(_cell(row.get(name)) for name in given), *cells[: len(answer)]])


VECTORS = (".npy", ".parquet")  # files of embeddings


def refuse_without_vectors(kind: Kind) -> None:
    """Refuse files of embeddings for a model that gives labels."""
    if not kind.encodes:
        raise UserError("only embeddings are written as .npy or .parquet", field="--out", hint="use .jsonl or .csv")


def write_vectors(predictions: Iterable[Prediction], path: Path) -> None:
    """The embeddings of all lines as an .npy matrix, NaN for lines without one; or as .parquet with their texts."""
    import numpy as np

    rows = [(one.text, one.rendered.fields["embedding"] if one.rendered else None) for one in predictions]
    width = max((len(vector) for _, vector in rows if vector), default=0)
    vectors = np.array([vector or [np.nan] * width for _, vector in rows], np.float32)
    with atomic_file(path) as partial, partial.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, vectors)
        else:
            import pyarrow as pa
            from pyarrow import parquet

            columns = {"text": [text for text, _ in rows], "embedding": list(vectors)}
            parquet.write_table(pa.table(columns), file)


def _cell(value: object) -> object:
    """A value as a cell: texts as they are, lists and objects as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


WRITERS: dict[str, Callable[[Iterable[Prediction], TextIO, Kind], None]] = {"jsonl": write_jsonl, "csv": write_csv}
