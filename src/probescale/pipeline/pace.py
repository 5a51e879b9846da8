"""How fast this machine is: a short measurement with the model and the data of the run."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from probescale.models.fast_float32 import fast_float32
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.models.memory import BatchSplitter
from probescale.models.subsets import Subset
from probescale.models.surgery import keep_layers
from probescale.pipeline.workbench import Workbench
from probescale.recovery.adapters import low_rank_adapters
from probescale.recovery.inputs import build_inputs, select_model_fields
from probescale.recovery.recipe import Recipe
from probescale.recovery.training import changed_dropout, states_computed_twice
from probescale.tasks.data import Data
from probescale.tasks.sampling import spread
from probescale.tasks.unlabelled import joined
from probescale.utils.progress import spinner

BATCHES = 5  # of the measurement, from the longest texts to the shortest
SAMPLED = 2000  # texts that batches are taken from
MOST_TIMED_BLOCKS = 2  # of running text
FORWARD_TOKENS = 2048  # per batch, where nothing is learned
SHARE_OF_LAYERS = 0.75  # of a cut model's parameters: the rest are its embeddings


class Pace(NamedTuple):
    """Seconds per text on this machine."""

    forward: float  # through the original
    train: float  # a training step of the original; where it is not trained, what its layers would take
    train_cut: float  # a training step of a model of the budget's size; of a ladder, of its largest rung
    train_rungs: dict[str, float] = {}  # noqa: RUF012 - the same of every rung; nothing changes it
    train_plainly: float | None = None  # a training step of the original without dropout, where time is limited

    def for_shorter(self, share: float) -> Pace:
        """The pace of texts with this share of the tokens."""
        rungs = {name: share * seconds for name, seconds in self.train_rungs.items()}
        plainly = self.train_plainly and share * self.train_plainly
        return Pace(share * self.forward, share * self.train, share * self.train_cut, rungs, plainly)

    def for_original(self, dropout: float | None) -> float:
        """Seconds per text of a training step of the original."""
        return self.train_plainly if dropout == 0 and self.train_plainly else self.train

    def for_rung(self, name: str) -> float:
        """Seconds per text of a training step of this size."""
        return self.train_rungs.get(name, self.train_cut)


@fast_float32()
def measure_pace(bench: Workbench) -> Pace:
    """Time a few batches of the data's own texts: forward through the original, and trained what the run trains."""
    texts = joined(bench.task.train, bench.task.unlabelled)
    recipe = bench.chosen_recipe.for_subnetworks(bench.config.recovery)
    with spinner("measuring this machine"):
        forward = _time_forward(bench, texts)
        cut = {name: _time_training(rung, _usual_cut(rung), texts, recipe) for name, rung in bench.rungs.items()}
        train, plainly = _time_original(bench) if _trains_original(bench) else (_estimate_original(bench, cut), None)
    return Pace(forward, train, max(cut.values()), cut if bench.config.selection.ladder else {}, plainly)


def _trains_original(bench: Workbench) -> bool:
    """Whether the run trains a model with all layers: one that is used as it is may not fit into memory for that."""
    return bench.chosen_recipe.original_epochs > 0 or "full_model" in bench.config.references


def _time_original(bench: Workbench) -> tuple[float, float | None]:
    """Seconds per text of a training step of the original; and without dropout, where time is limited."""
    recipe = bench.chosen_recipe.for_original(bench.config.recovery)
    copied = replace(bench.loaded, model=copy.deepcopy(bench.loaded.model))
    train = _time_training(bench, copied, bench.task.train, recipe)
    if bench.config.time is None:
        return train, None
    return train, _time_training(bench, copied, bench.task.train, replace(recipe, dropout=0.0))


def _estimate_original(bench: Workbench, cut: Mapping[str, float]) -> float:
    """The same by the time that the layers of the largest cut model take, without any training of the original."""
    largest = max(cut, key=lambda name: cut[name])
    return cut[largest] * bench.loaded.layers / len(_usual_layers(bench.rungs[largest]))


def _usual_cut(bench: Workbench) -> LoadedModel:
    """About what the budget allows: layers of full width; where tokens may be dropped, without training the others."""
    cut = keep_layers(bench.loaded, _usual_layers(bench))
    if bench.config.shrink.vocabulary != "all":
        cut.model.get_input_embeddings().requires_grad_(False)
    return cut


def _usual_layers(bench: Workbench) -> Subset:
    """About as many layers as the budget allows."""
    counted, allowed = bench.shrinker.original, bench.allowed_parameters
    allowed, original = counted.total / 2 if allowed is None else allowed, sum(counted.layers)
    layers = bench.budget.k or max(round(SHARE_OF_LAYERS * allowed / original * bench.loaded.layers), 1)
    fixed = bench.loaded.family.fixed(bench.loaded.model.config)
    return tuple(sorted({*fixed, *range(1, min(layers, bench.loaded.layers) + 1)}))


def _time_forward(bench: Workbench, texts: Data) -> float:
    """Seconds per text of a forward pass, in batches of as many tokens as later."""
    size = max(int(FORWARD_TOKENS // bench.situation.tokens), 1)

    def step(batch: dict[str, Tensor]) -> None:
        with torch.inference_mode():
            bench.loaded.model(**batch)

    return _time_steps(step, _draw_batches(bench, bench.loaded, texts, size), lambda: None)


def _time_training(bench: Workbench, loaded: LoadedModel, texts: Data, recipe: Recipe) -> float:
    """Seconds per text of a training step, with what the recipe learns: all weights, or adapters alone.

    The model is one that nothing else needs.
    """
    model, batches = loaded.model.train(), _draw_batches(bench, loaded, texts, recipe.batch_size)
    rank = recipe.adapter_rank if recipe.adapters == "lora" else None
    with (
        quiet_transformers(),
        changed_dropout(model, recipe.dropout),
        low_rank_adapters(model, rank),
        states_computed_twice(model, wanted=recipe.save_memory),
    ):
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.0, fused=True)

        def step(batch: dict[str, Tensor]) -> None:
            model(**batch)[0].sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return _time_steps(step, batches, optimizer.zero_grad)


def _draw_batches(bench: Workbench, loaded: LoadedModel, texts: Data, size: int) -> list[dict[str, Tensor]]:
    """Batches without much padding, as all passes have them: of every fifth of the lengths, texts near their mean."""
    drawn = texts.take(spread(len(texts), SAMPLED))
    inputs = build_inputs(loaded.tokenizer, drawn, bench.config.model.max_length)
    order, lengths = inputs.tokens.by_length, inputs.tokens.lengths
    if bench.situation.running_text:  # long inputs: one batch tells enough
        parts, size = [order], min(size, MOST_TIMED_BLOCKS)
    else:
        parts = np.array_split(order, min(BATCHES, max(len(order) // size, 1)))
    batches = []
    for part in parts:
        first = int(np.searchsorted(-lengths[part], -lengths[part].mean())) - size // 2
        first = max(min(first, len(part) - size), 0)
        batch = inputs.collate(loaded.tokenizer, [inputs[int(number)] for number in part[first : first + size]])
        fields = select_model_fields(batch).items()
        batches.append({name: tensor.to(loaded.model.device) for name, tensor in fields})
    return batches


def _time_steps(
    step: Callable[[dict[str, Tensor]], None], batches: Sequence[dict[str, Tensor]], undo: Callable[[], None]
) -> float:
    """Seconds per text. The first batch is repeated: memory is reserved when it runs for the first time.

    Batches that do not fit into memory are split, as they are in a run; `undo` forgets half of a step.
    """
    splitter = BatchSplitter()

    def run(batch: dict[str, Tensor]) -> None:
        texts, tokens = batch["input_ids"].shape
        splitter.run(
            range(texts), tokens, lambda part: step({name: tensor[part] for name, tensor in batch.items()}), undo
        )

    run(batches[0])
    _wait_for_gpu()
    begin = time.perf_counter()
    for batch in batches:
        run(batch)
    _wait_for_gpu()
    return (time.perf_counter() - begin) / sum(len(batch["input_ids"]) for batch in batches)


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
