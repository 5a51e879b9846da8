"""Parameters of a model and of every subnetwork of it, exactly, from the config alone (no weights needed)."""

from __future__ import annotations

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.errors import UserError
from probescale.models.families import Family, backbone
from probescale.models.parameters import Parameters


def count_parameters(model: PreTrainedModel, family: Family) -> Parameters:
    """Count a model in memory or on the meta device; shared tensors count once."""
    shared = {
        id(parameter)
        for block in family.stack(model)
        for name, parameter in block.named_parameters()
        if name in family.first_block_only
    }
    layers = tuple(sum(p.numel() for p in block.parameters() if id(p) not in shared) for block in family.stack(model))
    embeddings = sum(p.numel() for p in backbone(model).get_submodule(family.embeddings).parameters())
    total = sum(p.numel() for p in model.parameters())
    return Parameters(embeddings=embeddings, layers=layers, rest=total - embeddings - sum(layers))


def count_from_config(
    config: PreTrainedConfig, family: Family, classes: int, *, field: str = "model.source"
) -> Parameters:
    """Count the sentence classifier that this config describes, without allocating it."""
    names = {number: str(number) for number in range(classes)}
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    config = type(config).from_dict({**config.to_dict(), **labels})
    try:
        with torch.device("meta"):
            model = getattr(transformers, family.classifier).from_config(config)
    except Exception as error:  # whatever the model class makes of sizes that do not fit together
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"no model can be built from its config: {reason}", field=field) from error
    return count_parameters(model, family)
