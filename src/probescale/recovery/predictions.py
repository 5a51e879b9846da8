"""Predictions of models on the dev set: stored as JSON, and written to predictions.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probescale.tasks.data import tuple_rows
from probescale.tasks.task import Task
from probescale.utils.files import AGAIN, read_json, write_text


def save_predictions(path: Path, predicted: np.ndarray) -> None:
    """Store the predictions of one model, as `predict` returns them."""
    write_text(path, json.dumps([p.item() if isinstance(p, np.generic) else list(p) for p in predicted]))


def load_predictions(path: Path) -> np.ndarray:
    """Predictions that `save_predictions` stored."""
    rows: list[Any] = read_json(path, hint=AGAIN)
    if not rows or not isinstance(rows[0], list):
        return np.array(rows)
    return tuple_rows([tuple(row) for row in rows])


def write_predictions_csv(path: Path, task: Task, predicted: Mapping[str, np.ndarray]) -> None:
    """One line per dev example, numbered from 1: the gold label, and what every model predicts."""
    columns = {"right": task.gold, **predicted}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *columns])
    kind, names = task.kind, task.train.names
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        writer.writerow([number, *(kind.show(prediction, names) for prediction in row)])
    write_text(path, text.getvalue())
