"""Keep some layers of a model: a new model of the same stock class, with the parent's weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from torch import Tensor, nn
from transformers import PreTrainedConfig

from probescale.errors import ProofFailed, UserError
from probescale.models.family import Stack, backbone_prefix, check_layers
from probescale.models.layer_config import cut_config
from probescale.models.loading import LoadedModel, compute_fingerprint, empty_weights
from probescale.models.proof.comparison import load_options


def keep_layers(
    loaded: LoadedModel, kept: Sequence[int], decoder: Sequence[int] | None = None, *, share: bool = False
) -> LoadedModel:
    """A new model of the same stock class with only these layers, renumbered. The parent is not changed.

    `decoder`: the layers of a decoder to keep; None keeps all of them. `share`: use the parent's memory for the new
    model, which is enough to save it.
    """
    parent, family = loaded.model, loaded.family
    kept = family.check_kept(kept, parent.config)
    stacks = [(family.stack, kept)]
    if decoder is not None:
        stacks.append(_decoder_layers(loaded, decoder))
    weights = parent.state_dict()
    for stack, layers in stacks:
        weights = _renumber(weights, f"{backbone_prefix(parent)}{stack.blocks}.", stack.first_block_only, layers)
    weights = weights if share else {name: weight.clone() for name, weight in weights.items()}
    return build_like(loaded, lambda: cut_config(parent.config, family, kept, decoder), weights)


def build_like(
    loaded: LoadedModel, config: Callable[[], PreTrainedConfig], weights: Mapping[str, Tensor]
) -> LoadedModel:
    """A model of the parent's stock class with another config, and exactly these weights."""
    parent = loaded.model
    try:
        with empty_weights():
            child = type(parent)(config(), **load_options(parent))
        child.load_state_dict(weights, strict=True, assign=True)  # strict: no weight missing, none left over
    except Exception as error:  # layers of different shapes, or a config that cannot be cut
        raise ProofFailed(f"these layers do not fit together in {type(parent).__name__}: {_reason(error)}") from error
    _tie_as_in_parent(parent, child)
    if parent.can_generate():
        child.generation_config = copy.deepcopy(parent.generation_config)
    cast("nn.Module", child).to(parent.device)
    return replace(loaded, model=child.eval(), fingerprint=compute_fingerprint(child))


def _reason(error: Exception) -> str:
    """The error message in one line of at most 300 characters; torch lists all missing and unexpected keys."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]} ..."


def _tie_as_in_parent(parent: nn.Module, child: nn.Module) -> None:
    """Tie the parameters that are tied in the parent. The config alone may be wrong: FLAN-T5's head is not tied."""
    tied: dict[int, nn.Parameter] = {}
    modules = dict(child.named_modules())
    own = dict(child.named_parameters(remove_duplicate=False))
    for name, parameter in parent.named_parameters(remove_duplicate=False):
        if name not in own:
            continue  # in a layer that was dropped or renumbered; nothing there is tied
        shared = tied.setdefault(id(parameter), own[name])
        if shared is not own[name]:
            path, _, last = name.rpartition(".")
            modules[path].register_parameter(last, shared)


def _decoder_layers(loaded: LoadedModel, kept: Sequence[int]) -> tuple[Stack, tuple[int, ...]]:
    blocks = loaded.family.decoder_layers(loaded.model)
    if blocks is None or loaded.family.decoder is None:
        raise UserError("this model has no separate decoder", field="--keep-decoder", hint="leave it out")
    return loaded.family.decoder, check_layers(kept, len(blocks), field="--keep-decoder")


def _renumber(
    weights: dict[str, Tensor], stack: str, first_block_only: Sequence[str], kept: Sequence[int]
) -> dict[str, Tensor]:
    """The parent's weights under their names in the cut model; `stack` is the prefix of its layers."""
    outside: dict[str, Tensor] = {}
    inside: dict[int, dict[str, Tensor]] = {}  # layer -> name within the block -> weight
    for name, weight in weights.items():
        if name.startswith(stack):
            index, _, inner = name.removeprefix(stack).partition(".")
            inside.setdefault(int(index) + 1, {})[inner] = weight
        else:
            outside[name] = weight
    shared = {inner: inside[1].pop(inner) for inner in first_block_only}
    for new, layer in enumerate(kept):
        again = layer in kept[:new]  # a layer that runs twice gets its own weights each time
        block = {inner: weight.clone() if again else weight for inner, weight in inside[layer].items()}
        block |= shared if new == 0 else {}
        outside |= {f"{stack}{new}.{inner}": weight for inner, weight in block.items()}
    return outside
