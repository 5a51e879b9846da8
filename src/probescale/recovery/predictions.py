"""Predictions of models on the dev set: stored as JSON, and written to predictions.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probescale.errors import UserError
from probescale.tasks.data import tuple_rows
from probescale.tasks.task import Task
from probescale.utils.files import AGAIN, read_json, write_text

LARGEST = 1e300  # number that can be measured with


def save_predictions(path: Path, predicted: np.ndarray) -> None:
    """Store the predictions of one model, as `predict` returns them."""
    write_text(path, json.dumps([p.item() if isinstance(p, np.generic) else list(p) for p in predicted]))


def load_predictions(path: Path, task: Task) -> np.ndarray:
    """Predictions for the dev examples of a task that `save_predictions` stored."""
    rows, gold = read_json(path, hint=AGAIN), task.gold
    fits = isinstance(rows, list) and len(rows) == len(gold)
    if not fits or not all(_is_like(row, one, len(task.train.names)) for row, one in zip(rows, gold, strict=True)):
        raise UserError(f"{path} is damaged: it is not one prediction for each of {len(gold)} examples", hint=AGAIN)
    return tuple_rows([tuple(row) for row in rows]) if isinstance(gold[0], tuple) else np.array(rows)


def rename_labels(predicted: np.ndarray, names: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray:
    """Predictions as numbers of the wanted names, where a model has the same names in another order.

    Where every label has a logit, the logits are put into that order.
    """
    if names == wanted:
        return predicted
    if predicted.dtype == object and isinstance(predicted[0][0], float):
        return tuple_rows([tuple(row[names.index(name)] for name in wanted) for row in predicted])
    numbers = np.array([*(wanted.index(name) for name in names), -1])  # the last: -1 stays -1
    if predicted.dtype != object:
        return numbers[predicted]
    return tuple_rows([tuple(numbers[list(row)].tolist()) for row in predicted])


def _is_like(prediction: Any, gold: object, labels: int) -> bool:  # noqa: ANN401 - read from a file
    """Whether a value can be a prediction where this one would be right. -1: nothing was predicted."""
    if isinstance(gold, tuple):
        if not isinstance(prediction, list) or len(prediction) != len(gold):
            return False
        return all(_is_like(one, right, labels) for one, right in zip(prediction, gold, strict=True))
    if isinstance(gold, float | np.floating):
        return isinstance(prediction, int | float) and abs(prediction) < LARGEST
    return isinstance(prediction, int) and -1 <= prediction < labels


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
