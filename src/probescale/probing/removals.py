"""Greedy removal: take out layer after layer, always the one without which the task's loss is lowest.

The rule of SLEB, Shortened LLaMA and TALE. A candidate shares all states below the layer it leaves out with the others,
so it runs from there; most candidates are ruled out on a part of the calibration data. Without both, a step would cost
as many passes as there are layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from probescale.models.block_calls import BlockCalls, record_calls
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache
from probescale.models.subsets import Subset
from probescale.probing.scores import Removals
from probescale.utils.progress import progress

FIRST_ROUND = 4  # a step compares all candidates on one in so many batches,
FINALISTS = 4  # and one in so many of them, but at least 3, on all batches


@dataclass(frozen=True)
class CalibrationBatch:
    """Inputs of the model, and how its outputs for them are judged."""

    inputs: dict[str, Tensor]
    loss: Callable[[Tensor], tuple[float, int]]  # logits -> sum of losses, and how many they are


@torch.inference_mode()
def measure_removals(
    loaded: LoadedModel,
    batches: Sequence[CalibrationBatch],
    *,
    fixed: Sequence[int] = (),
    enough: Callable[[Subset], bool] = lambda kept: len(kept) == 1,
    so_far: Removals | None = None,
    save: Callable[[Removals], None] = lambda _: None,
) -> Removals:
    """The order in which layers are taken out, until `enough` are. `fixed` layers stay.

    `so_far`: what an interrupted measurement has found; `save` gets the same after every step.
    """
    runs = [_BatchRun.record(loaded, batch) for batch in batches]
    layers = range(1, loaded.layers + 1)
    if so_far is None:
        so_far = Removals(before=_mean([run.loss(tuple(layers)) for run in runs]), rows=_rows(runs))
        save(so_far)
    kept = tuple(layer for layer in layers if layer not in so_far.order)
    with progress("taking out layers", len(kept) - 1) as advance:
        while not enough(kept) and set(kept) - set(fixed) and len(kept) > 1:
            layer, loss, passes = _find_cheapest(runs, kept, fixed, loaded.layers)
            kept = tuple(other for other in kept if other != layer)
            so_far = so_far.with_step(layer, loss, passes)
            save(so_far)
            advance(1)
    return so_far


def _find_cheapest(
    runs: Sequence[_BatchRun], kept: Subset, fixed: Sequence[int], layers: int
) -> tuple[int, float, float]:
    """The layer to take out, the loss without it, and the cost in passes of all batches through the model."""
    candidates = [layer for layer in kept if layer not in fixed]
    first = -(-len(runs) // FIRST_ROUND)
    losses = {layer: [0.0, 0] for layer in candidates}
    cost = 0.0
    for some in (runs[:first], runs[first:]):
        for run in some:
            for layer, (total, count) in run.losses(kept, candidates).items():
                losses[layer][0] += total
                losses[layer][1] += count
            cost += _count_blocks(kept, candidates) / layers / len(runs)
        means = {layer: losses[layer][0] / losses[layer][1] for layer in candidates}
        ranked = sorted(candidates, key=lambda layer: (means[layer], layer))
        candidates = sorted(ranked[: max(len(ranked) // FINALISTS, 3)])
    best = ranked[0]
    return best, means[best], cost


def _count_blocks(kept: Subset, candidates: Sequence[int]) -> int:
    """Layers that run for one batch: up to the last candidate, and for every candidate those above it."""
    places = [kept.index(layer) for layer in candidates]
    return max(places) + sum(len(kept) - 1 - place for place in places)


@dataclass(frozen=True)
class _BatchRun:
    """One batch, and how the model calls its blocks for it."""

    model: PreTrainedModel
    calls: BlockCalls
    batch: CalibrationBatch

    @classmethod
    def record(cls, loaded: LoadedModel, batch: CalibrationBatch) -> _BatchRun:
        model, blocks = loaded.model, list(loaded.family.layers(loaded.model))
        batch = replace(batch, inputs={name: value.to(model.device) for name, value in batch.inputs.items()})
        calls = record_calls(blocks, lambda: model(**batch.inputs, **without_cache(model)))
        return cls(model, calls.without_states(), batch)

    def losses(self, kept: Subset, candidates: Sequence[int]) -> dict[int, tuple[float, int]]:
        """The loss without each of the candidates. States below a candidate are computed once."""
        state, found = self.calls.embedded, {}
        for place, layer in enumerate(kept):
            if layer in candidates:
                found[layer] = self._finish(state, kept[place + 1 :])
            if len(found) == len(candidates):
                break
            state = self.calls.run_block(layer, state)
        return found

    def loss(self, kept: Subset) -> tuple[float, int]:
        return self._finish(self.calls.embedded, kept)

    def _finish(self, state: Tensor, rest: Subset) -> tuple[float, int]:
        """Run the rest of the layers on a state, then what the model does after its last layer."""
        for layer in rest:
            state = self.calls.run_block(layer, state)
        with self.calls.returning(state):
            logits = self.model(**self.batch.inputs, **without_cache(self.model)).logits
        return self.batch.loss(logits)


def _mean(parts: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in parts) / max(sum(count for _, count in parts), 1)


def _rows(runs: Sequence[_BatchRun]) -> int:
    return sum(len(run.batch.inputs["input_ids"]) for run in runs)
