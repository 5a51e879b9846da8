"""Detect the family of a model type that is not described: find its layers in the model, built without weights."""

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
    """A family for the one stack of equal blocks with as many layers as the config says, or an error."""
    name = config.model_type
    if isinstance(text := getattr(config, "text_config", None), PreTrainedConfig):
        raise _refusal(
            name,
            "it is not a text-only model. Its language model can be cut once it is saved as a separate model "
            f'(type "{text.model_type}")',
            known,
            field,
        )
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise _refusal(name, "it is not a text-only model (its config has no vocab_size)", known, field)
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int):
        raise _refusal(name, "its config has no num_hidden_layers", known, field)
    try:
        with torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=False)
    except Exception as error:  # whatever the model class raises for its config
        raise _refusal(name, f"no model can be built from its config ({first_line(error)})", known, field) from error
    stacks = find_stacks(backbone(model))
    decoder = _find_decoder(config, stacks)
    matching = [p for p, length in stacks.items() if length == count and (decoder is None or p != decoder.blocks)]
    if len(matching) != 1:
        seen = ", ".join(f"{path} ({length})" for path, length in stacks.items()) or "none"
        reason = f"{len(matching)} stacks have the {count} layers of its config; stacks: {seen}"
        raise _refusal(name, reason, known, field)
    if name not in _announced:
        _announced.add(name)
        console.print(
            f'note: model type "{name}" has no description; its layers were detected at "{matching[0]}". '
            "Every cut is proved before it is written.",
        )
    return Family(
        name,
        (name,),
        Stack(matching[0]),
        decoder,
        (_find_embeddings(model),),
        pooling=_pooling(config),
        detected=True,
    )


def _find_decoder(config: PreTrainedConfig, stacks: dict[str, int]) -> Stack | None:
    """The decoder's stack of an encoder-decoder; None in other models."""
    for path, length in stacks.items():
        for name in ("decoder_layers", "num_decoder_layers"):
            if config.is_encoder_decoder and path.startswith("decoder.") and getattr(config, name, None) == length:
                return Stack(path, layer_count_setting=name)
    return None


def find_stacks(model: nn.Module) -> dict[str, int]:
    """Path -> length of every list of blocks of one class with their own weights, without lists inside a block."""
    stacks: dict[str, int] = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) and not inside:
            blocks = [{id(parameter) for parameter in block.parameters()} for block in module]
            own = sum(map(len, blocks)) == len(set().union(*blocks)) > 0
            if own and len({type(block) for block in module}) == 1:
                stacks[path] = len(module)
    return stacks


def _find_embeddings(model: PreTrainedModel) -> str:
    """The path of the module called embeddings around the token embeddings, or of the token embeddings themselves."""
    tokens = model.get_input_embeddings()
    path = next(path for path, module in backbone(model).named_modules() if module is tokens)
    before, name, _ = path.partition("embeddings")
    return before + name if name else path


def _pooling(config: PreTrainedConfig) -> str:
    """The last token for causal models, which only there have read the text; else the mean of all tokens."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    return "mean" if config.model_type in MASKED or config.is_encoder_decoder else "last"


def _refusal(name: str, reason: str, known: Sequence[str], field: str) -> UserError:
    return UserError(
        f'model type "{name}" is not supported: {reason}.{did_you_mean(name, known)}',
        field=field,
        hint=f"use a model of type: {', '.join(known)}",
    )
