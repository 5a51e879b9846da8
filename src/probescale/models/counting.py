"""Parameters of a model and of every subnetwork of it, exactly, from the config alone (no weights needed)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import transformers
from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.models.families import Family, backbone


class Parameters(BaseModel):
    """Where a model's parameters sit. A subnetwork has the embeddings, the rest, and the layers it keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embeddings: int
    layers: tuple[int, ...]  # one number a layer
    rest: int  # head, pooler, final norm, position biases shared by all layers

    @property
    def total(self) -> int:
        return self.of(range(1, len(self.layers) + 1))

    def of(self, kept: Iterable[int]) -> int:
        """Parameters of the subnetwork with these layers (numbered from 1).

        >>> Parameters(embeddings=100, layers=(10, 10, 10), rest=5).of([1, 3])
        125
        """
        return self.embeddings + self.rest + self.in_layers(kept)

    def in_layers(self, kept: Iterable[int]) -> int:
        return sum(self.layers[layer - 1] for layer in kept)

    def ratios(self, kept: Sequence[int]) -> tuple[float, float]:
        """Share of all parameters, and share of the parameters in layers."""
        every = range(1, len(self.layers) + 1)
        return self.of(kept) / self.total, self.in_layers(kept) / self.in_layers(every)


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


def count_from_config(config: PreTrainedConfig, family: Family, classes: int) -> Parameters:
    """Count the sentence classifier that this config describes, without allocating it."""
    config = type(config).from_dict({**config.to_dict(), "num_labels": classes})
    with torch.device("meta"):
        model = getattr(transformers, family.classifier).from_config(config)
    return count_parameters(model, family)
