"""Reduce the feed-forward width: keep the best units of every layer, as many in each, as stock configs require.

A unit is a row of the projection into the feed-forward part and a column of the projection out of it. The best units
are those from which the layer's output can be computed best. The output projection is fitted anew, so that they also
give what the dropped ones gave, as far as they can (`unit_choice.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from probescale.errors import UserError
from probescale.models.batching import padded_batches, tokenize
from probescale.models.block_calls import removing_hooks
from probescale.models.family import Family, Stack, backbone, backbone_prefix
from probescale.models.loading import LoadedModel
from probescale.models.shrink.unit_choice import fit_output, rank_units
from probescale.models.surgery import build_like
from probescale.utils.progress import progress

FIELD = "shrink.units"


class UnitMoments:
    """Mean products of every two feed-forward units of a layer, over the tokens of some texts; and what follows.

    `layers`: one (units + 1, units + 1) per layer; the last row and column are those of a constant 1.
    """

    def __init__(self, layers: list[Tensor]) -> None:
        self.layers = layers
        self._orders: dict[int, Tensor] = {}  # by layer, as long as was needed up to now

    def best_units(self, layer: int, weight: Tensor, count: int, *, has_bias: bool) -> Tensor:
        """The best units of a layer (from 0) with this output projection, in their order in the model."""
        if len(self._orders.get(layer, ())) < count:
            longest = max(count, weight.shape[1] // 2)  # the best few are the beginning of the best many
            self._orders[layer] = rank_units(self.layers[layer], weight, longest, has_bias=has_bias)
        return self._orders[layer][:count].sort().values


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


def find_units(model: PreTrainedModel, family: Family) -> int | None:
    """The feed-forward width of the model; None where it cannot change."""
    try:
        return count_units(model, family)
    except UserError:  # the family's width is fixed, or the decoder has the same
        return None


def parameters_per_unit(model: PreTrainedModel, family: Family) -> int:
    """Parameters of one unit of one layer; the model may be on the meta device."""
    units = count_units(model, family)
    block = dict(family.layers(model)[0].named_parameters())
    return sum(block[name].numel() for name, _ in _cut_weights(family.layers(model)[0], family.stack)) // units


def measure_units(
    loaded: LoadedModel,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 128,
    batch_tokens: int = 2048,
) -> UnitMoments:
    """The moments of all units on these texts, in one pass over them."""
    model, stack = loaded.model, loaded.family.stack
    _refuse_unsupported(model, loaded.family)
    if not texts:
        raise UserError("feed-forward units are compared on texts, and there are none", field=FIELD)
    blocks = loaded.family.layers(model)
    size = count_units(model, loaded.family) + 1
    sums = [torch.zeros(size, size) for _ in blocks]
    mask, count = torch.ones(0), 0

    def hook(number: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def add(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            real = args[0].flatten(0, -2)[mask].float().cpu()  # (tokens, units)
            real = torch.cat([real, real.new_ones(len(real), 1)], 1)
            sums[number].addmm_(real.T, real)

        return add

    tokens = tokenize(loaded.tokenizer, texts, pairs, max_length)
    projections = [block.get_submodule(stack.feed_forward_output) for block in blocks]
    handles = [part.register_forward_pre_hook(hook(number)) for number, part in enumerate(projections)]
    with removing_hooks(handles), torch.inference_mode(), progress("feed-forward units", len(tokens)) as advance:
        for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
            inputs = {name: tensor.to(model.device) for name, tensor in padded.items()}
            mask = inputs["attention_mask"].bool().flatten()
            count += int(mask.sum())
            backbone(model)(**inputs)
            advance(len(batch))
    return UnitMoments([total / count for total in sums])


def keep_units(
    loaded: LoadedModel, count: int, moments: UnitMoments, layers: Sequence[int] | None = None
) -> LoadedModel:
    """A new model of the same stock class with the `count` best units of every layer. The parent is not changed.

    `layers`: which layers of the measured model (from 1) those of this one are; by default all of them.
    """
    parent, stack = loaded.model, loaded.family.stack
    measured = [layer - 1 for layer in layers or range(1, loaded.layers + 1)]
    _check_arguments(loaded, count, [moments.layers[number] for number in measured if number < len(moments.layers)])
    weights = {name: weight.clone() for name, weight in parent.state_dict().items()}
    for number, block in enumerate(loaded.family.layers(parent)):
        prefix = f"{backbone_prefix(parent)}{stack.blocks}.{number}."
        out, axis = _output_weight(block, stack)
        columns = (out if axis == 1 else out.T).cpu()  # (hidden, units)
        bias = weights.get(f"{prefix}{stack.feed_forward_output}.bias")
        best = moments.best_units(measured[number], columns, count, has_bias=bias is not None)
        fitted, shift = fit_output(
            moments.layers[measured[number]], columns, None if bias is None else bias.cpu(), best
        )
        for name, dimension in _cut_weights(block, stack):
            weights[prefix + name] = weights[prefix + name].index_select(dimension, best.to(parent.device))
        output = f"{prefix}{stack.feed_forward_output}"
        weights[f"{output}.weight"] = (fitted if axis == 1 else fitted.T).contiguous().to(out)
        if shift is not None:
            weights[f"{output}.bias"] = shift.to(out)
    return build_like(loaded, lambda: with_width(parent.config, stack, count), weights)


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


def with_width(config: PreTrainedConfig, stack: Stack, count: int) -> PreTrainedConfig:
    """The config of the same model with another feed-forward width."""
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


def _check_arguments(loaded: LoadedModel, count: int, moments: Sequence[Tensor]) -> None:
    """Refuse an impossible number of units, and moments that do not fit the model."""
    units = count_units(loaded.model, loaded.family)
    if not 1 <= count <= units:
        message = f"{count} feed-forward units cannot be kept: a layer of this model has {units}"
        raise UserError(message, field=FIELD, hint=f"give 1 to {units}")
    if [each.shape for each in moments] != [(units + 1, units + 1)] * loaded.layers:
        raise UserError(f"moments are needed for {loaded.layers} layers with {units} units each", field=FIELD)
