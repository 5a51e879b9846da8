"""Measure the time of a forward pass on this machine, of each layer in it, and of two models side by side."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from probescale.models.cost import Cost
from probescale.models.family import Family
from probescale.models.fast_float32 import usual_float32
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache
from probescale.models.speed import PASSES, WARM_UP, Speed, compare_speed


@usual_float32()
def measure_latency(model: PreTrainedModel, family: Family, length: int, batch_size: int = 1) -> Cost:
    """Median milliseconds of one pass over a full batch of this length, for every layer and for the rest."""
    layers = family.layers(model)
    started = [0.0] * len(layers)
    times: list[list[float]] = [[] for _ in layers]
    totals: list[float] = []
    handles: list[Any] = []
    for number, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(lambda *_, n=number: started.__setitem__(n, _now(model))))
        handles.append(layer.register_forward_hook(lambda *_, n=number: times[n].append(_now(model) - started[n])))
    inputs = _full_batch(model, family, length, batch_size)
    try:
        with torch.inference_mode():
            for _ in range(WARM_UP + PASSES):
                begin = _now(model)
                model(**inputs)
                totals.append(_now(model) - begin)
    finally:
        for handle in handles:
            handle.remove()
    layer_times = tuple(statistics.median(passes[WARM_UP:]) for passes in times)
    return Cost(fixed=max(statistics.median(totals[WARM_UP:]) - sum(layer_times), 0.0), layers=layer_times)


def compare_latency(original: LoadedModel, model: LoadedModel, length: int, batch_size: int = 1) -> Speed:
    """How fast a model is beside the original, for full batches of this length."""

    def run_once(loaded: LoadedModel) -> None:
        loaded.model(**_full_batch(loaded.model, loaded.family, length, batch_size))
        _now(loaded.model)

    with torch.inference_mode():
        speed = compare_speed(lambda _: run_once(original), lambda _: run_once(model))
    if model.model.device.type != "cuda":
        return speed
    return replace(speed, spread=speed.spread.model_copy(update={"waited": 0.0}))  # it waits for the GPU


def _full_batch(model: PreTrainedModel, family: Family, length: int, batch_size: int) -> dict[str, Any]:
    """A batch of this length without padding; which tokens it has does not matter."""
    ids = torch.full((batch_size, length), 5, device=model.device)
    ends = model.config.eos_token_id  # BART's head reads the state at this token
    ids[:, -1] = ends[0] if isinstance(ends, list) else 5 if ends is None else ends
    decoded = {"decoder_input_ids": ids} if family.decoder_layers(model) is not None else {}
    return {"input_ids": ids, **decoded, **without_cache(model)}


def _now(model: PreTrainedModel) -> float:
    """The time in milliseconds, after all work on the GPU is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * time.perf_counter()
