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

    Fields of JSON lines are the columns that the first thousand lines have. Where a text can have several labels, every
    label has a column with its probability.
    """
    rest = iter(predictions)
    first = list(islice(rest, CHUNK))
    given = list(dict.fromkeys(name for one in first for name in one.row)) or ["text"]
    labels = _list_labels(first, kind)
    answer = [name for name in kind.answers if name in (kind.answers[0], "probability")]
    table = csv.writer(target, lineterminator="\n")
    table.writerow(["line", *given, *answer, *(_new_name(f"probability_{label}", given) for label in labels)])
    for prediction in chain(first, rest):
        row, rendered = prediction.row or {"text": prediction.text}, prediction.rendered
        if later := [name for name in row if name not in given and prediction.row]:
            raise UserError(
                f'line {prediction.number} has the field "{later[0]}", and none of the first {CHUNK:,} lines has it',
                field="--format",
                hint="use jsonl",
            )
        cells = [rendered.cell, rendered.probability][: len(answer)] if rendered else [""] * len(answer)
        shares = rendered.fields["probabilities"] if rendered and labels else {}
        cells += [shares.get(label) for label in labels]
        table.writerow([prediction.number, *(_cell(row.get(name)) for name in given), *cells])


def _list_labels(predictions: Iterable[Prediction], kind: Kind) -> list[str]:
    """The labels of which every text has some, each with a probability; none where it has only one."""
    if "probabilities" not in kind.answers or "probability" in kind.answers:
        return []
    return next((list(one.rendered.fields["probabilities"]) for one in predictions if one.rendered), [])


def _new_name(name: str, given: list[str]) -> str:
    """The name of a column that the input does not have."""
    return name if name not in given else _new_name(f"predicted_{name}", given)


def _cell(value: object) -> object:
    """A value as a cell: texts as they are, lists and objects as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


WRITERS: dict[str, Callable[[Iterable[Prediction], TextIO, Kind], None]] = {"jsonl": write_jsonl, "csv": write_csv}
