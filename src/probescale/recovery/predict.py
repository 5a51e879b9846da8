"""What a model answers, in the order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from probescale.models.batching import batches_by_tokens
from probescale.models.family import Family
from probescale.models.loading import LoadedModel
from probescale.progress import progress
from probescale.recovery.inputs import Data, Inputs, inputs_of
from probescale.tasks.data import Examples


def predict(
    loaded: LoadedModel, data: Data, *, max_length: int = 128, batch_tokens: int = 2048, title: str = "evaluating"
) -> np.ndarray:
    """Numbers of labels, quantities, or a tuple of tags a sentence (-1 for a word beyond the length limit)."""
    inputs = inputs_of(loaded, data, max_length)
    answers = answers_of(loaded, inputs, batch_tokens=batch_tokens, title=title)
    if isinstance(data, Examples) and data.kind == "number":
        return answers[:, 0].astype(np.float64)
    seen = ~np.isnan(answers[:, 0])
    best = np.where(seen, np.where(seen[:, None], answers, 0).argmax(-1), -1)
    if isinstance(data, Examples):
        return best
    tagged = np.empty(len(data), object)
    tagged[:] = [tuple(best[a:b].tolist()) for a, b in zip(inputs.starts, inputs.starts[1:], strict=False)]
    return tagged


@torch.inference_mode()
def answers_of(
    loaded: LoadedModel,
    inputs: Inputs,
    *,
    batch_tokens: int = 2048,
    title: str = "evaluating",
    only: Sequence[int] | None = None,
    note: Callable[[dict[str, Tensor]], None] = lambda _: None,
) -> np.ndarray:
    """(rows, classes): the logits of every row; NaN for words beyond the length limit, and for inputs not in `only`.

    `note` hears of every batch.
    """
    model, tokens = loaded.model, inputs.tokens
    found: np.ndarray | None = None
    order = tokens.by_length if only is None else tokens.by_length[np.isin(tokens.by_length, only)]
    with progress(title, len(order)) as advance:
        for here in batches_by_tokens(tokens.lengths[order], batch_tokens):
            batch = inputs.collate(loaded.tokenizer, [inputs[int(number)] for number in order[here]])
            logits, batch = run(model, batch)
            note(batch)
            logits, rows = rows_of(loaded.family, logits, batch)
            if found is None:
                found = np.full((inputs.rows, logits.shape[-1]), np.nan, np.float32)
            found[rows.cpu().numpy()] = logits.float().cpu().numpy()
            advance(len(order[here]))
    assert found is not None
    return found


def run(model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of a batch, and the batch where the model is."""
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    fields = {name: tensor for name, tensor in batch.items() if name not in ("rows", "number")}
    return model(**fields).logits, batch


def rows_of(family: Family, logits: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(rows, classes) and which rows they are, from what the model returns for a batch."""
    rows = batch["rows"]
    if rows.ndim == 2:  # one answer a token
        return logits[rows >= 0], rows[rows >= 0]
    return family.sentence_logits(logits, batch["attention_mask"]), rows
