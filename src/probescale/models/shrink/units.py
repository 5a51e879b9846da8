"""Finer than layers: keep some feed-forward units of every layer, the same number everywhere, as stock configs say it.

A unit is a row of the projection into the feed-forward part and a column of the one out of it. What it does on average
is not lost with it: the mean goes into the bias of the projection, where there is one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from probescale.errors import UserError
from probescale.models.batching import padded_batches, tokenize
from probescale.models.block_calls import removing_hooks
from probescale.models.family import Family, Stack, backbone, backbone_prefix
from probescale.models.loading import LoadedModel
from probescale.models.surgery import build_like
from probescale.utils.progress import progress

FIELD = "shrink.units"


@dataclass(frozen=True)
class UnitScores:
    """Of every layer and unit, on some texts."""

    scores: list[np.ndarray]  # how much it adds to the states: size of its activation times length of its column
    means: list[np.ndarray]  # its activation on average


def why_width_is_fixed(family: Family) -> str:
    """Why no feed-forward unit of this model can be dropped; nothing where some can."""
    if family.detected:
        return "nobody has described where its layers have their feed-forward units"
    return "" if family.stack.unit_projections else "gates and units are one matrix in its stock class"


def count_units(model: PreTrainedModel, family: Family) -> int:
    """How many units each layer has."""
    _refuse(model, family)
    weight, axis = _out(family.layers(model)[0], family.stack)
    return weight.shape[axis]


def parameters_per_unit(model: PreTrainedModel, family: Family) -> int:
    """What one unit of one layer costs; the model may be on the meta device."""
    units = count_units(model, family)
    block = dict(family.layers(model)[0].named_parameters())
    return sum(block[name].numel() for name, _ in _cut_weights(family.layers(model)[0], family.stack)) // units


def score_units(
    loaded: LoadedModel,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 128,
    batch_tokens: int = 2048,
) -> UnitScores:
    """What every unit does on these texts, in one pass."""
    model, stack = loaded.model, loaded.family.stack
    _refuse(model, loaded.family)
    if not texts:
        raise UserError("units are scored on texts, and there is none", field=FIELD)
    blocks = loaded.family.layers(model)
    sums = [_Sums() for _ in blocks]
    mask = torch.ones(0)

    def hook(number: int) -> object:
        return lambda _module, args: sums[number].add(args[0], mask)

    tokens = tokenize(loaded.tokenizer, texts, pairs, max_length)
    outs = [block.get_submodule(stack.feed_forward_output) for block in blocks]
    handles = [out.register_forward_pre_hook(hook(number)) for number, out in enumerate(outs)]  # type: ignore[arg-type]
    with removing_hooks(handles), torch.inference_mode(), progress("feed-forward units", len(tokens)) as advance:
        for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
            inputs = {name: tensor.to(model.device) for name, tensor in padded.items()}
            mask = inputs["attention_mask"].bool().flatten()
            backbone(model)(**inputs)
            advance(len(batch))
    lengths = [_column_lengths(*_out(block, stack)) for block in blocks]
    scores = [one.size * length for one, length in zip(sums, lengths, strict=True)]
    return UnitScores(scores, [one.mean for one in sums])


def keep_units(
    loaded: LoadedModel, count: int, scores: Sequence[np.ndarray], means: Sequence[np.ndarray] | None = None
) -> LoadedModel:
    """A new model of the same stock class with the best units of every layer. The parent is left as it is.

    With `means`, what the others add on average goes into the bias behind them; models without that bias lose it.
    """
    parent, stack = loaded.model, loaded.family.stack
    _check(loaded, count, [scores] if means is None else [scores, means])
    weights = {name: weight.clone() for name, weight in parent.state_dict().items()}
    for number, block in enumerate(loaded.family.layers(parent)):
        prefix = f"{backbone_prefix(parent)}{stack.blocks}.{number}."
        best = np.sort(np.argsort(-scores[number], kind="stable")[:count])  # among equals the first
        bias = weights.get(f"{prefix}{stack.feed_forward_output}.bias")
        if means is not None and bias is not None:
            bias += _dropped_on_average(*_out(block, stack), best, means[number]).to(bias)
        kept = torch.from_numpy(best).to(parent.device)
        for name, axis in _cut_weights(block, stack):
            weights[prefix + name] = weights[prefix + name].index_select(axis, kept)
    return build_like(loaded, lambda: _with_width(parent.config, stack, count), weights)


class _Sums:
    """Sums over the real tokens of a layer."""

    def __init__(self) -> None:
        self.tokens = 0
        self.first = self.second = torch.zeros(1, dtype=torch.float64)  # of activations, and of their squares

    def add(self, activations: Tensor, mask: Tensor) -> None:
        real = activations.flatten(0, -2)[mask].double().cpu()  # (tokens, units)
        self.tokens += len(real)
        self.first, self.second = self.first + real.sum(0), self.second + real.square().sum(0)

    @property
    def mean(self) -> np.ndarray:
        return (self.first / self.tokens).numpy()

    @property
    def size(self) -> np.ndarray:
        """Root of the mean square."""
        return (self.second / self.tokens).sqrt().numpy()


def _out(block: nn.Module, stack: Stack) -> tuple[Tensor, int]:
    """The weight of the projection out of the feed-forward part, and which of its axes has the units."""
    out = block.get_submodule(stack.feed_forward_output)
    return out.get_parameter("weight").detach(), 0 if isinstance(out, Conv1D) else 1


def _cut_weights(block: nn.Module, stack: Stack) -> Iterator[tuple[str, int]]:
    """Weights of a block that units have a part in: name, and the axis of the units."""
    modules = dict(block.named_modules())
    for path in stack.unit_projections:
        if path in modules:
            yield f"{path}.weight", 1 if isinstance(modules[path], Conv1D) else 0
            if getattr(modules[path], "bias", None) is not None:
                yield f"{path}.bias", 0
    yield f"{stack.feed_forward_output}.weight", _out(block, stack)[1]


def _column_lengths(weight: Tensor, axis: int) -> np.ndarray:
    return weight.double().norm(dim=1 - axis).cpu().numpy()


def _dropped_on_average(weight: Tensor, axis: int, kept: np.ndarray, means: np.ndarray) -> Tensor:
    """(hidden,): what all units but these add to the states."""
    others = means.copy()
    others[kept] = 0
    columns = (weight if axis == 1 else weight.T).double().cpu()
    return columns @ torch.from_numpy(others).double()


def _with_width(config: PreTrainedConfig, stack: Stack, count: int) -> PreTrainedConfig:
    cut = copy.deepcopy(config)
    setattr(cut, stack.width_setting, count)
    return cut


def _refuse(model: PreTrainedModel, family: Family) -> None:
    """Refuse what the stock class has no place for."""
    if reason := why_width_is_fixed(family):
        message = f"feed-forward units of {model.config.model_type} models cannot be dropped: {reason}"
        raise UserError(message, field=FIELD, hint="drop layers alone")
    if family.decoder_layers(model) is not None and not hasattr(model.config, "decoder_ffn_dim"):
        raise UserError(
            f"{type(model).__name__} has one width for its encoder and its decoder, whose units are not scored",
            field=FIELD,
            hint="take the encoder alone, with --encoder-only",
        )


def _check(loaded: LoadedModel, count: int, given: Sequence[Sequence[np.ndarray]]) -> None:
    units = count_units(loaded.model, loaded.family)
    if not 1 <= count <= units:
        message = f"{count} feed-forward units cannot be kept: a layer of this model has {units}"
        raise UserError(message, field=FIELD, hint=f"give 1 to {units}")
    for rows in given:
        if [np.shape(row) for row in rows] != [(units,)] * loaded.layers:
            raise UserError(f"{loaded.layers} layers with {units} units each need a number for every unit", field=FIELD)
