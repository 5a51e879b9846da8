"""Predictions and logits of a model, in the order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from probescale.models.batching import batches_by_tokens
from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter
from probescale.recovery.inputs import Inputs, build_inputs, forward
from probescale.recovery.states import capture_states, mean_over_tokens
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.utils.distributed import map_over_processes, move_to_own_device
from probescale.utils.progress import progress

Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]  # inputs, rows, logits, states


def predict(loaded: LoadedModel, data: Data, *, max_length: int = 128, title: str = "evaluating") -> np.ndarray:
    """(inputs,) the prediction for every input, decoded by the kind of task."""
    inputs = build_inputs(loaded.tokenizer, data, max_length)
    logits = compute_logits(loaded, inputs, title=title)
    return find_kind(data.kind).answer(logits, inputs.starts, data)


def compute_logits(
    loaded: LoadedModel,
    inputs: Inputs,
    *,
    batch_tokens: int | None = None,
    title: str = "evaluating",
    only: Sequence[int] | None = None,
    receive: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> np.ndarray:
    """(rows, columns): the logits of every row, or what the inputs keep of them.

    NaN for words beyond the length limit, and for inputs not in `only`.

    `receive(numbers of inputs, states)` gets each layer's mean over the tokens, (inputs, layers, hidden).
    """
    move_to_own_device(loaded.model)
    tokens, batch_tokens = inputs.tokens, batch_tokens or inputs.batch_tokens(loaded.model.config.vocab_size)
    result = np.full((inputs.rows, inputs.count_columns(loaded)), np.nan, np.float32)
    order = tokens.by_length if only is None else tokens.by_length[np.isin(tokens.by_length, only)]
    batches = (order[here] for here in batches_by_tokens(tokens.lengths[order], batch_tokens))
    blocks = list(loaded.family.layers(loaded.model)) if receive else []
    with torch.inference_mode(), capture_states(blocks) as captured, progress(title, len(order)) as advance:
        for parts in map_over_processes(partial(_batch, loaded, inputs, captured, BatchSplitter()), batches):
            for numbers, rows, logits, states in parts:
                result[rows] = logits
                if receive and states is not None:
                    receive(numbers, states)
                advance(len(numbers))
    return result


def _batch(
    loaded: LoadedModel, inputs: Inputs, captured: list[Tensor], splitter: BatchSplitter, numbers: np.ndarray
) -> list[Part]:
    """Run one batch, in parts if it does not fit into memory."""
    tokens = int(inputs.tokens.lengths[numbers].max())
    return splitter.run(
        numbers, tokens, lambda part: _part(loaded, inputs, captured, numbers[part]), undo=captured.clear
    )


def _part(loaded: LoadedModel, inputs: Inputs, captured: list[Tensor], numbers: np.ndarray) -> Part:
    """The inputs' numbers, their rows, the logits, and the states if they are captured."""
    output, batch = forward(loaded.model, inputs.collate(loaded.tokenizer, [inputs[int(number)] for number in numbers]))
    logits, rows = inputs.read(loaded, output, batch)
    states = mean_over_tokens(captured, batch["attention_mask"]).float().cpu().numpy() if captured else None
    return numbers, rows.cpu().numpy(), logits.float().cpu().numpy(), states
