"""Writing predictions as they come: JSON lines or CSV, and a count of the lines that have none."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from probescale.deploy.predict import Prediction
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


def write_jsonl(predictions: Iterable[Prediction], target: TextIO) -> None:
    """One JSON object per line."""
    for prediction in predictions:
        target.write(escape_json(json.dumps(prediction.record(), ensure_ascii=False)) + "\n")


def write_csv(predictions: Iterable[Prediction], target: TextIO) -> None:
    """A table with a header; the answer is empty where there is no prediction."""
    table = csv.writer(target, lineterminator="\n")
    table.writerow(("line", "text", "answer", "probability"))
    for prediction in predictions:
        rendered = prediction.rendered
        cells = (rendered.cell, rendered.probability) if rendered else ("", None)
        table.writerow((prediction.number, prediction.text, *cells))


WRITERS: dict[str, Callable[[Iterable[Prediction], TextIO], None]] = {"jsonl": write_jsonl, "csv": write_csv}
