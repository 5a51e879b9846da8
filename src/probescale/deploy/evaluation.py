"""Predictions of a model opened for inference on a data set, and the metric of the task on them."""

from __future__ import annotations

import numpy as np

from probescale.deploy.inference import InferenceModel, compute_logits
from probescale.models.memory import BatchSplitter
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.tasks.task import Task
from probescale.utils.progress import progress


def predict_dataset(model: InferenceModel, data: Data, max_length: int, title: str = "predicting") -> np.ndarray:
    """(inputs,) the prediction for every input, decoded by the kind of task."""
    inputs = build_inputs(model.tokenizer, data, min(max_length, model.max_length))
    with progress(title, len(inputs)) as advance:
        logits = compute_logits(model, inputs, BatchSplitter(), advance=advance)
    return find_kind(data.kind).answer(logits, inputs.starts, data)


def evaluate_metric(model: InferenceModel, task: Task, max_length: int) -> float:
    """The metric of the task on its dev set."""
    return task.measure(task.gold, predict_dataset(model, task.dev, max_length, f"measuring: {model.format}"))
