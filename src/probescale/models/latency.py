"""How long a forward pass takes on this machine, and each layer in it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from probescale.models.cost import Cost
from probescale.models.family import Family
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache

WARM_UP = 3
PASSES = 15


def measure_latency(model: PreTrainedModel, family: Family, length: int, batch_size: int = 1) -> Cost:
    """Median milliseconds of one pass over a full batch of this length: of every layer, and of all the rest."""
    layers = family.layers(model)
    started = [0.0] * len(layers)
    times: list[list[float]] = [[] for _ in layers]
    whole: list[float] = []
    handles: list[Any] = []
    for number, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(lambda *_, n=number: started.__setitem__(n, _now(model))))
        handles.append(layer.register_forward_hook(lambda *_, n=number: times[n].append(_now(model) - started[n])))
    inputs = inputs_for(model, family, length, batch_size)
    try:
        with torch.inference_mode():
            for _ in range(WARM_UP + PASSES):
                begin = _now(model)
                model(**inputs)
                whole.append(_now(model) - begin)
    finally:
        for handle in handles:
            handle.remove()
    of_layers = tuple(statistics.median(passes[WARM_UP:]) for passes in times)
    return Cost(fixed=max(statistics.median(whole[WARM_UP:]) - sum(of_layers), 0.0), layers=of_layers)


def compare_latency(models: Sequence[LoadedModel], length: int, batch_size: int = 1) -> list[float]:
    """Median milliseconds of one pass of each, taken in turn: what else the machine does slows them all alike."""
    times: list[list[float]] = [[] for _ in models]
    with torch.inference_mode():
        for _ in range(WARM_UP + PASSES):
            for one, passes in zip(models, times, strict=True):
                inputs = inputs_for(one.model, one.family, length, batch_size)
                begin = _now(one.model)
                one.model(**inputs)
                passes.append(_now(one.model) - begin)
    return [statistics.median(passes[WARM_UP:]) for passes in times]


def inputs_for(model: PreTrainedModel, family: Family, length: int, batch_size: int) -> dict[str, Any]:
    """A full batch of any tokens."""
    ids = torch.full((batch_size, length), 5, device=model.device)
    ends = model.config.eos_token_id
    ids[:, -1] = ends[0] if isinstance(ends, list) else 5 if ends is None else ends  # BART's head looks for it
    decoded = {"decoder_input_ids": ids} if family.decoder_layers(model) is not None else {}
    return {"input_ids": ids, **decoded, **without_cache(model)}


def _now(model: PreTrainedModel) -> float:
    """Milliseconds, with the GPU's work done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * time.perf_counter()
