"""A model type that nobody described: find its layers by looking at the model, built without weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from probescale.errors import UserError, did_you_mean, first_line
from probescale.models.family import Family, Stack, backbone
from probescale.utils.progress import console

_announced: set[str] = set()


def detect_family(config: PreTrainedConfig, *, known: Sequence[str], field: str) -> Family:
    """The one stack of like blocks whose length is the config's layer count, or a refusal that says what was found."""
    name = config.model_type
    if isinstance(text := getattr(config, "text_config", None), PreTrainedConfig):
        raise _refusal(
            name,
            "it is not a model of texts alone. Its language model can be cut once it is saved as a model of its own "
            f'(type "{text.model_type}")',
            known,
            field,
        )
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise _refusal(name, "it is not a model of texts alone (its config has no vocab_size)", known, field)
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int):
        raise _refusal(name, "its config has no num_hidden_layers", known, field)
    try:
        with torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=False)
    except Exception as error:  # whatever the model class makes of its config
        raise _refusal(name, f"no model can be built from its config ({first_line(error)})", known, field) from error
    stacks = find_stacks(backbone(model))
    second = _second(config, stacks)
    found = [path for path, length in stacks.items() if length == count and (second is None or path != second.blocks)]
    if len(found) != 1:
        seen = ", ".join(f"{path} ({length})" for path, length in stacks.items()) or "none"
        raise _refusal(name, f"{len(found)} stacks have the {count} layers of its config; stacks: {seen}", known, field)
    if name not in _announced:
        _announced.add(name)
        console.print(
            f'note: model type "{name}" has no description here; its layers were found at "{found[0]}". '
            "Cuts are proved before they are written.",
        )
    return Family(
        name, (name,), Stack(found[0]), second, (_embeddings(model),), pooling=_pooling(config), detected=True
    )


def _second(config: PreTrainedConfig, stacks: dict[str, int]) -> Stack | None:
    """The decoder of an encoder-decoder."""
    for path, length in stacks.items():
        for name in ("decoder_layers", "num_decoder_layers"):
            if config.is_encoder_decoder and path.startswith("decoder.") and getattr(config, name, None) == length:
                return Stack(path, layer_count_setting=name)
    return None


def find_stacks(model: nn.Module) -> dict[str, int]:
    """Lists of blocks of one class with weights of their own -> their length; lists inside a block are not stacks."""
    stacks: dict[str, int] = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) and not inside:
            blocks = [{id(parameter) for parameter in block.parameters()} for block in module]
            own = sum(map(len, blocks)) == len(set().union(*blocks)) > 0
            if own and len({type(block) for block in module}) == 1:
                stacks[path] = len(module)
    return stacks


def _embeddings(model: PreTrainedModel) -> str:
    """The module called embeddings around the word embeddings, or they themselves."""
    words = model.get_input_embeddings()
    path = next(path for path, module in backbone(model).named_modules() if module is words)
    head, found, _ = path.partition("embeddings")
    return head + found if found else path


def _pooling(config: PreTrainedConfig) -> str:
    """Causal models know a text at its last token; of the others the mean needs no special token."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    return "mean" if config.model_type in MASKED or config.is_encoder_decoder else "last"


def _refusal(name: str, reason: str, known: Sequence[str], field: str) -> UserError:
    return UserError(
        f'model type "{name}" is not supported: {reason}.{did_you_mean(name, known)}',
        field=field,
        hint=f"use a model of type: {', '.join(known)}",
    )
