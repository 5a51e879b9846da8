"""Reduce the feed-forward width: keep the best units of every layer, as many in each, as stock configs require.

A unit is a row of the projection into the feed-forward part and a column of the projection out of it. The average
contribution of dropped units is kept: it goes into the bias of the output projection, where there is one.
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
    """Statistics of all feed-forward units on some texts: one array per layer, one value per unit."""

    scores: list[np.ndarray]  # root mean square of the activation times norm of the unit's output column
    means: list[np.ndarray]  # mean activation


def why_width_is_fixed(family: Family) -> str:
    """The reason why the feed-forward width of this family cannot change; empty where it can."""
    if family.detected:
        return "its feed-forward units are not described"
    return "" if family.stack.unit_projections else "gates and units are one matrix in its stock class"


def count_units(model: PreTrainedModel, family: Family) -> int:
    """The feed-forward width of the model."""
    _refuse_unsupported(model, family)
    weight, axis = _output_weight(family.layers(model)[0], family.stack)
    return weight.shape[axis]


def parameters_per_unit(model: PreTrainedModel, family: Family) -> int:
    """Parameters of one unit of one layer; the model may be on the meta device."""
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
    """Score every unit on these texts, in one pass over them."""
    model, stack = loaded.model, loaded.family.stack
    _refuse_unsupported(model, loaded.family)
    if not texts:
        raise UserError("feed-forward units are scored on texts, and there are none", field=FIELD)
    blocks = loaded.family.layers(model)
    sums = [_Sums() for _ in blocks]
    mask = torch.ones(0)

    def hook(number: int) -> object:
        return lambda _module, args: sums[number].add(args[0], mask)

    tokens = tokenize(loaded.tokenizer, texts, pairs, max_length)
    projections = [block.get_submodule(stack.feed_forward_output) for block in blocks]
    hooks = [hook(number) for number in range(len(blocks))]
    handles = [part.register_forward_pre_hook(own) for part, own in zip(projections, hooks, strict=True)]  # type: ignore[arg-type]
    with removing_hooks(handles), torch.inference_mode(), progress("feed-forward units", len(tokens)) as advance:
        for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
            inputs = {name: tensor.to(model.device) for name, tensor in padded.items()}
            mask = inputs["attention_mask"].bool().flatten()
            backbone(model)(**inputs)
            advance(len(batch))
    norms = [_column_norms(*_output_weight(block, stack)) for block in blocks]
    scores = [layer.root_mean_square * norm for layer, norm in zip(sums, norms, strict=True)]
    return UnitScores(scores, [layer.mean for layer in sums])


def keep_units(
    loaded: LoadedModel, count: int, scores: Sequence[np.ndarray], means: Sequence[np.ndarray] | None = None
) -> LoadedModel:
    """A new model of the same stock class with the `count` best units of every layer. The parent is not changed.

    With `means`, the average contribution of the dropped units goes into the output bias, if the model has one.
    """
    parent, stack = loaded.model, loaded.family.stack
    _check_arguments(loaded, count, [scores] if means is None else [scores, means])
    weights = {name: weight.clone() for name, weight in parent.state_dict().items()}
    for number, block in enumerate(loaded.family.layers(parent)):
        prefix = f"{backbone_prefix(parent)}{stack.blocks}.{number}."
        best = np.sort(np.argsort(-scores[number], kind="stable")[:count])  # ties: the first
        bias = weights.get(f"{prefix}{stack.feed_forward_output}.bias")
        if means is not None and bias is not None:
            bias += _mean_of_dropped(*_output_weight(block, stack), best, means[number]).to(bias)
        kept = torch.from_numpy(best).to(parent.device)
        for name, axis in _cut_weights(block, stack):
            weights[prefix + name] = weights[prefix + name].index_select(axis, kept)
    return build_like(loaded, lambda: _with_width(parent.config, stack, count), weights)


class _Sums:
    """Running sums of a layer's activations over all tokens but padding."""

    def __init__(self) -> None:
        self.tokens = 0
        self.total = self.squares = torch.zeros(1, dtype=torch.float64)  # per unit: of activations, of their squares

    def add(self, activations: Tensor, mask: Tensor) -> None:
        real = activations.flatten(0, -2)[mask].double().cpu()  # (tokens, units)
        self.tokens += len(real)
        self.total, self.squares = self.total + real.sum(0), self.squares + real.square().sum(0)

    @property
    def mean(self) -> np.ndarray:
        return (self.total / self.tokens).numpy()

    @property
    def root_mean_square(self) -> np.ndarray:
        return (self.squares / self.tokens).sqrt().numpy()


def _output_weight(block: nn.Module, stack: Stack) -> tuple[Tensor, int]:
    """The weight of the projection out of the feed-forward part, and its axis of units."""
    out = block.get_submodule(stack.feed_forward_output)
    return out.get_parameter("weight").detach(), 0 if isinstance(out, Conv1D) else 1


def _cut_weights(block: nn.Module, stack: Stack) -> Iterator[tuple[str, int]]:
    """Weights of a block with an axis of units: their names and that axis."""
    modules = dict(block.named_modules())
    for path in stack.unit_projections:
        if path in modules:
            yield f"{path}.weight", 1 if isinstance(modules[path], Conv1D) else 0
            if getattr(modules[path], "bias", None) is not None:
                yield f"{path}.bias", 0
    yield f"{stack.feed_forward_output}.weight", _output_weight(block, stack)[1]


def _column_norms(weight: Tensor, axis: int) -> np.ndarray:
    return weight.double().norm(dim=1 - axis).cpu().numpy()


def _mean_of_dropped(weight: Tensor, axis: int, kept: np.ndarray, means: np.ndarray) -> Tensor:
    """The average contribution of all units that are not kept, (hidden,)."""
    dropped = means.copy()
    dropped[kept] = 0
    columns = (weight if axis == 1 else weight.T).double().cpu()
    return columns @ torch.from_numpy(dropped).double()


def _with_width(config: PreTrainedConfig, stack: Stack, count: int) -> PreTrainedConfig:
    cut = copy.deepcopy(config)
    setattr(cut, stack.width_setting, count)
    return cut


def _refuse_unsupported(model: PreTrainedModel, family: Family) -> None:
    """Refuse a model whose stock class cannot have another feed-forward width."""
    if reason := why_width_is_fixed(family):
        message = f"feed-forward units of {model.config.model_type} models cannot be dropped: {reason}"
        raise UserError(message, field=FIELD, hint="drop only layers")
    if family.decoder_layers(model) is not None and not hasattr(model.config, "decoder_ffn_dim"):
        raise UserError(
            f"{type(model).__name__} has one feed-forward width for encoder and decoder; its decoder is not scored",
            field=FIELD,
            hint="load only the encoder, with --encoder-only",
        )


def _check_arguments(loaded: LoadedModel, count: int, per_layer: Sequence[Sequence[np.ndarray]]) -> None:
    """Refuse an impossible number of units, and scores or means that do not fit the model."""
    units = count_units(loaded.model, loaded.family)
    if not 1 <= count <= units:
        message = f"{count} feed-forward units cannot be kept: a layer of this model has {units}"
        raise UserError(message, field=FIELD, hint=f"give 1 to {units}")
    for rows in per_layer:
        if [np.shape(row) for row in rows] != [(units,)] * loaded.layers:
            raise UserError(f"scores need {loaded.layers} layers with one value for each of {units} units", field=FIELD)
