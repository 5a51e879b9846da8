"""How fast this machine is: a short measurement with the model and the data of the run."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from probescale.models.loading import LoadedModel
from probescale.models.surgery import keep_layers
from probescale.pipeline.workbench import Workbench
from probescale.recovery.inputs import build_inputs, select_model_fields
from probescale.recovery.training import changed_dropout
from probescale.tasks.sampling import sample
from probescale.utils.progress import spinner

BATCHES, WARM_UP, MOST_TIMED = 5, 1, 400  # batches and texts of the measurement
FORWARD_TOKENS = 2048  # per batch, where nothing is learned
SHARE_OF_LAYERS = 0.75  # of a cut model's parameters: the rest are its embeddings


class Pace(NamedTuple):
    """Seconds per text on this machine."""

    forward: float  # through the original
    train: float  # a training step of the original
    train_cut: float  # a training step of a model of the budget's size


def measure_pace(bench: Workbench) -> Pace:
    """Time a few batches of the data's own texts: forward and trained, through the original and a smaller model."""
    total, original = bench.shrinker.original.total, sum(bench.shrinker.original.layers)
    limits = [limit.most(total) for limit in bench.budget.limits if limit.unit == "parameters"]
    allowed = min(limits, default=total / 2)
    layers = bench.budget.k or max(round(SHARE_OF_LAYERS * allowed / original * bench.loaded.layers), 1)
    layers = min(layers, bench.loaded.layers)
    fixed = bench.loaded.family.fixed(bench.loaded.model.config)
    kept = tuple(sorted({*fixed, *range(1, layers + 1)}))
    recipe = bench.chosen_recipe
    with spinner("measuring this machine"):
        forward = _time_forward(bench)
        train = _time_training(bench, bench.loaded, recipe.original_batch_size, recipe.original_dropout)
        train_cut = _time_training(bench, keep_layers(bench.loaded, kept), recipe.batch_size, recipe.dropout)
    return Pace(forward, train, train_cut)


def _time_forward(bench: Workbench) -> float:
    """Seconds per text of a forward pass, in batches of as many tokens as later."""
    model = bench.loaded.model
    seconds = []
    for batch in _draw_batches(bench, bench.loaded, max(int(FORWARD_TOKENS // bench.situation.tokens), 1)):
        begin = time.perf_counter()
        with torch.inference_mode():
            model(**batch)
        seconds.append((time.perf_counter() - begin) / len(batch["input_ids"]))
    return _mean(seconds)


def _time_training(bench: Workbench, loaded: LoadedModel, batch_size: int, dropout: float | None) -> float:
    """Seconds per text of a training step."""
    model = copy.deepcopy(loaded.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    seconds = []
    with changed_dropout(model, dropout):
        for batch in _draw_batches(bench, loaded, batch_size):
            begin = time.perf_counter()
            model(**batch).logits.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append((time.perf_counter() - begin) / len(batch["input_ids"]))
    return _mean(seconds)


def _draw_batches(bench: Workbench, loaded: LoadedModel, size: int) -> Iterator[dict[str, Tensor]]:
    """Batches of similar length, as all passes have them, of random training texts."""
    count = min(size * BATCHES, MOST_TIMED)
    texts = sample(bench.task.train, count, bench.config.seed)
    inputs = build_inputs(loaded.tokenizer, texts, bench.config.model.max_length)
    order = inputs.tokens.by_length.tolist()
    for first in range(0, len(order), size):
        numbers = order[first : first + size]
        batch = inputs.collate(loaded.tokenizer, [inputs[number] for number in numbers])
        yield {name: tensor.to(loaded.model.device) for name, tensor in select_model_fields(batch).items()}


def _mean(seconds: list[float]) -> float:
    """The mean, without the first batch where there are more: memory is reserved then."""
    timed = seconds[WARM_UP:] or seconds
    return sum(timed) / len(timed)
