"""What models answered on dev, row by row: predictions.csv of a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probescale.tasks.task import Task
from probescale.utils.files import write_text


def save_predictions(path: Path, predicted: np.ndarray) -> None:
    """Label numbers, quantities, or a tuple of tag numbers a sentence."""
    write_text(path, json.dumps([one.item() if isinstance(one, np.generic) else list(one) for one in predicted]))


def load_predictions(path: Path) -> np.ndarray:
    rows: list[Any] = json.loads(path.read_text(encoding="utf-8"))
    if not rows or not isinstance(rows[0], list):
        return np.array(rows)
    found = np.empty(len(rows), object)
    found[:] = [tuple(row) for row in rows]
    return found


def write_predictions_csv(path: Path, task: Task, answers: Mapping[str, np.ndarray]) -> None:
    """A line for every row of dev, numbered from 1: what is right, and what every model says."""
    columns = {"right": task.gold, **answers}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *columns])
    kind, names = task.kind, task.train.names
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        writer.writerow([number, *(kind.show(one, names) for one in row)])
    write_text(path, text.getvalue())
