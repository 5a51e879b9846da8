"""Keep some attention heads of every layer, as many in each, where a stock class can hold the result.

A stock class can if its config has a head size that does not follow from the number of heads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from probescale.errors import UserError
from probescale.models.family import Family, Stack, backbone_prefix
from probescale.models.loading import LoadedModel
from probescale.models.surgery import build_like

C = TypeVar("C", bound=PreTrainedConfig)
Heads = tuple[int, ...]  # heads of one layer, numbered from 1, ascending
FIELD = "--heads"


def why_heads_are_fixed(family: Family, config: PreTrainedConfig) -> str:
    """The reason why no attention head of this model can be dropped; empty where some can."""
    if family.detected:
        return "its attention heads are not described"
    if not family.stack.head_projections:
        return family.why_heads_are_fixed
    return "" if len(possible_head_counts(config)) > 1 else "its config accepts no smaller number of heads"


def head_group_size(config: PreTrainedConfig) -> int:
    """Heads that share keys and values and are dropped together; 1 where all heads share them, or none do."""
    heads, groups = config.num_attention_heads, _groups(config)
    return heads // groups if groups > 1 else 1


def possible_head_counts(config: PreTrainedConfig) -> tuple[int, ...]:
    """The numbers of heads that a layer can have, ascending; the last is its current number."""
    heads, size = config.num_attention_heads, head_group_size(config)
    return tuple(count for count in range(size, heads + 1, size) if count == heads or _is_accepted(config, count))


def check_head_count(count: int, family: Family, config: PreTrainedConfig) -> None:
    """Refuse a number of heads that the stock class cannot have."""
    if reason := why_heads_are_fixed(family, config):
        message = f"heads of {config.model_type} models cannot be dropped: {reason}"
        raise UserError(message, field=FIELD, hint="drop only layers")
    counts, heads, size = possible_head_counts(config), config.num_attention_heads, head_group_size(config)
    if count in counts:
        return
    reason = f"{type(config).__name__} does not accept {count} heads with a hidden size of {config.hidden_size}"
    if not 1 <= count <= heads:
        reason = f"{count} heads cannot be kept: a layer of this model has {heads}"
    elif count % size:
        reason = f"{count} heads are not a whole number of groups: each {size} share keys and values"
    raise UserError(reason, field=FIELD, hint=f"give one of: {', '.join(map(str, counts))}")


def choose_heads(
    scores: Sequence[Sequence[float]], count: int, family: Family, config: PreTrainedConfig
) -> tuple[Heads, ...]:
    """The best heads of every layer by their scores (layers, heads); a group scores the sum of its heads."""
    check_head_count(count, family, config)
    size = head_group_size(config)
    rows = [[sum(row[first : first + size]) for first in range(0, len(row), size)] for row in scores]
    if family.stack.first_block_only:  # position biases belong to head numbers, and all layers share them
        rows = [[sum(column) for column in zip(*rows, strict=True)]] * len(rows)
    return tuple(_best(row, count // size, size) for row in rows)


def keep_heads(loaded: LoadedModel, kept: Sequence[Sequence[int]], *, share: bool = False) -> LoadedModel:
    """A new model of the same stock class with only these heads of every layer. The parent is not changed.

    `share`: use the parent's memory for the weights that stay the same, which is enough to save the new model.
    """
    parent = loaded.model
    _check_heads(kept, loaded)
    weights = parent.state_dict()
    weights = weights if share else {name: weight.clone() for name, weight in weights.items()}
    for number, heads in enumerate(kept):
        block = f"{backbone_prefix(parent)}{loaded.family.stack.blocks}.{number}."
        for name, axis, parts in _cut_weights(loaded.family.stack, parent.config):
            if (weight := weights.get(block + name)) is not None:
                per_part = parent.config.num_attention_heads // parts
                chosen = sorted({(head - 1) // per_part for head in heads})
                weights[block + name] = _select_parts(weight, axis, parts, chosen)
    return build_like(loaded, lambda: _with_heads(parent.config, len(kept[0])), weights)


def _cut_weights(stack: Stack, config: PreTrainedConfig) -> Iterator[tuple[str, int, int]]:
    """Weights of a block with an axis of heads or groups: name, axis, and number of heads or groups on it."""
    queries, *shared = stack.head_projections
    for kind in ("weight", "bias"):
        yield f"{queries}.{kind}", 0, config.num_attention_heads
        yield from ((f"{part}.{kind}", 0, _groups(config)) for part in shared)
    for name in (f"{stack.attention_output}.weight", *stack.first_block_only):
        yield name, 1, config.num_attention_heads


def _select_parts(weight: Tensor, axis: int, parts: int, chosen: Sequence[int]) -> Tensor:
    """The chosen ones of equal parts along an axis."""
    split = weight.unflatten(axis, (parts, -1))
    return split.index_select(axis, torch.tensor(chosen, device=weight.device)).flatten(axis, axis + 1)


def _check_heads(kept: Sequence[Sequence[int]], loaded: LoadedModel) -> None:
    """Refuse heads that the stock class cannot hold."""
    config, family = loaded.model.config, loaded.family
    check_head_count(len(kept[0]) if kept else 0, family, config)
    if family.decoder_layers(loaded.model) is not None:
        raise UserError(
            f"{type(loaded.model).__name__} has one number of heads for encoder and decoder, and decoder heads are not "
            "probed",
            field=FIELD,
            hint="load only the encoder, with --encoder-only",
        )
    if len(kept) != loaded.layers or len({len(heads) for heads in kept}) > 1:
        raise UserError(f"each of the {loaded.layers} layers needs heads, as many as the others", field=FIELD)
    for layer, heads in enumerate(kept, 1):
        size = head_group_size(config)
        groups = {(head - 1) // size for head in heads}
        complete = [head for head in range(1, config.num_attention_heads + 1) if (head - 1) // size in groups]
        if list(heads) != complete:
            hint = f"1 to {config.num_attention_heads}, in ascending order, whole groups of {size}"
            raise UserError(f"heads {list(heads)} of layer {layer} cannot be kept", field=FIELD, hint=hint)
    if family.stack.first_block_only and len(set(map(tuple, kept))) > 1:
        raise UserError("position biases belong to head numbers: keep the same heads in all layers", field=FIELD)


def _groups(config: PreTrainedConfig) -> int:
    """The number of key and value heads."""
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def _with_heads(config: C, count: int) -> C:
    """A copy of the config with another number of heads of the same size."""
    cut = copy.deepcopy(config)
    # Explicit: it no longer follows from the number of heads.
    cut.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cut.num_attention_heads = count
    if (getattr(config, "num_key_value_heads", None) or 1) > 1:
        cut.num_key_value_heads = count // head_group_size(config)
    return cut


def _is_accepted(config: PreTrainedConfig, count: int) -> bool:
    """Whether the config class accepts this number of heads; some require a divisor of the hidden size."""
    try:
        type(config).from_dict(_with_heads(config, count).to_dict())
    except Exception:  # whatever its own checks raise
        return False
    return True


def _best(groups: Sequence[float], count: int, size: int) -> Heads:
    """The heads of the best groups; ties go to the first."""
    ranked = sorted(range(len(groups)), key=lambda group: -groups[group])
    return tuple(group * size + n for group in sorted(ranked[:count]) for n in range(1, size + 1))
