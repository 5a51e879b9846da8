"""What a ready model says of data, and how well: the same loop whatever it runs on."""

from __future__ import annotations

import numpy as np

from probescale.deploy.ready import Ready, run_in_parts
from probescale.models.batching import batches_by_tokens
from probescale.models.memory import Portions
from probescale.recovery.inputs import Data, inputs_of
from probescale.recovery.predict import decided
from probescale.tasks.task import Task
from probescale.utils.progress import progress

BATCH_TOKENS = 2048


def answers(ready: Ready, data: Data, max_length: int, title: str = "answering") -> np.ndarray:
    """Numbers of labels, quantities, or tuples of tags, as predict() gives them."""
    inputs = inputs_of(ready.tokenizer, data, min(max_length, ready.longest))
    found: np.ndarray | None = None
    order, portions = inputs.tokens.by_length, Portions()
    with progress(title, len(order)) as advance:
        for here in batches_by_tokens(inputs.tokens.lengths[order], BATCH_TOKENS):
            batch = inputs.collate(ready.tokenizer, [inputs[int(number)] for number in order[here]])
            rows = batch["rows"].numpy()
            fields = {name: value.numpy() for name, value in batch.items() if name not in ("rows", "number")}
            logits = run_in_parts(ready, fields, order[here], portions)
            if rows.ndim == 2:
                logits, rows = logits[rows >= 0], rows[rows >= 0]
            if found is None:
                found = np.full((inputs.rows, logits.shape[-1]), np.nan, np.float32)
            found[rows] = logits
            advance(len(order[here]))
    assert found is not None
    return decided(data, inputs, found)


def metric_of(ready: Ready, task: Task, max_length: int) -> float:
    """On dev."""
    return task.measure(task.gold, answers(ready, task.dev, max_length, f"measuring: {ready.format}"))
