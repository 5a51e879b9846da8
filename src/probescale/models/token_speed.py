"""Tokens per second of a generative model beside the original: reading a prompt, and writing with a cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from transformers import PreTrainedModel

from probescale.models.loading import LoadedModel
from probescale.models.speed import WARM_UP, SpeedSpread, compare_speed

PASSES = 7
STEPS = 4  # tokens that are written per measurement
WRITTEN = (WARM_UP + PASSES) * STEPS


class TokenSpeed(BaseModel):
    """How fast a model reads or writes, beside the original."""

    model_config = ConfigDict(frozen=True)

    tokens_per_second: float
    speedup: float  # how many times as fast as the original; both are timed alternately
    spread: SpeedSpread


class TokenSpeeds(BaseModel):
    """How fast a model reads a prompt and goes on after it, one text at a time; and what it needs in memory."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int
    prefill: TokenSpeed  # reading the prompt
    decoding: TokenSpeed  # writing after it, with a cache of the keys and values
    weights_megabytes: float  # as they are in memory
    cache_megabytes: float  # after the prompt


def measure_token_speeds(original: LoadedModel, model: LoadedModel, length: int) -> TokenSpeeds:
    """Time both models in turn on a prompt of this length, or the longest that leaves room to write."""
    longest = model.family.longest_input(model.model.config)
    length = max(min(length, longest - WRITTEN) if longest else length, 1)
    with torch.inference_mode():
        models = (original.model, model.model)
        prefill = _compare(*(lambda _, one=one: _read(one, length) for one in models), tokens=length)
        writers = [_Writer(one, length) for one in models]
        memory = _measure_cache(writers[1].cache)
        decoding = _compare(*(writer.write for writer in writers), tokens=STEPS)
    return TokenSpeeds(
        prompt_tokens=length,
        prefill=prefill,
        decoding=decoding,
        weights_megabytes=round(sum(one.numel() * one.element_size() for one in model.model.parameters()) / 1e6, 3),
        cache_megabytes=round(memory / 1e6, 3),
    )


def _compare(original: Callable[[int], object], own: Callable[[int], object], tokens: int) -> TokenSpeed:
    speed = compare_speed(original, own, PASSES)
    rate = round(1000 * tokens / max(speed.milliseconds, 1e-3), 1)
    return TokenSpeed(tokens_per_second=rate, speedup=speed.speedup, spread=speed.spread)


def _read(model: PreTrainedModel, length: int) -> Any:  # noqa: ANN401 - a cache of the model's own kind
    """The cache after a prompt; which tokens it has does not matter. Only the last logits are needed."""
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    output = model(input_ids=torch.full((1, length), 5, device=model.device), use_cache=True, **last)
    _wait(model)
    return output.past_key_values


class _Writer:
    """A model that has read a prompt, and writes a few tokens per call."""

    def __init__(self, model: PreTrainedModel, length: int) -> None:
        self.model, self.cache = model, _read(model, length)

    def write(self, number: int) -> None:
        for _ in range(STEPS):
            token = torch.full((1, 1), 5, device=self.model.device)
            self.cache = self.model(input_ids=token, past_key_values=self.cache, use_cache=True).past_key_values
        _wait(self.model)


def _measure_cache(cache: Any) -> int:  # noqa: ANN401 - a cache of the model's own kind
    """Bytes of all tensors in a cache."""
    tensors = [value for layer in cache.layers for value in vars(layer).values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _wait(model: PreTrainedModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()
