"""Predictions of a model opened for inference on a data set, and the metric of the task on them."""

from __future__ import annotations

import numpy as np

from probescale.deploy.inference import InferenceModel, run_in_parts
from probescale.models.batching import batches_by_tokens
from probescale.models.memory import BatchSplitter
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.tasks.task import Task
from probescale.utils.progress import progress

BATCH_TOKENS = 2048


def predict_dataset(model: InferenceModel, data: Data, max_length: int, title: str = "predicting") -> np.ndarray:
    """(inputs,) the prediction for every input, decoded by the kind of task."""
    inputs = build_inputs(model.tokenizer, data, min(max_length, model.max_length))
    logits_of_rows: np.ndarray | None = None
    order, portions = inputs.tokens.by_length, BatchSplitter()
    with progress(title, len(order)) as advance:
        for here in batches_by_tokens(inputs.tokens.lengths[order], BATCH_TOKENS):
            batch = inputs.collate(model.tokenizer, [inputs[int(number)] for number in order[here]])
            rows = batch["rows"].numpy()
            fields = {name: value.numpy() for name, value in batch.items() if name not in ("rows", "number")}
            logits = run_in_parts(model, fields, order[here], portions)
            if rows.ndim == 2:
                logits, rows = logits[rows >= 0], rows[rows >= 0]
            if logits_of_rows is None:
                logits_of_rows = np.full((inputs.rows, logits.shape[-1]), np.nan, np.float32)
            logits_of_rows[rows] = logits
            advance(len(order[here]))
    assert logits_of_rows is not None
    return find_kind(data.kind).decode(logits_of_rows, inputs.starts)


def evaluate_metric(model: InferenceModel, task: Task, max_length: int) -> float:
    """The metric of the task on its dev set."""
    return task.measure(task.gold, predict_dataset(model, task.dev, max_length, f"measuring: {model.format}"))
