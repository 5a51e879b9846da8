"""LoRA: learn small matrices beside the weights of the layers instead of the weights, and add them in at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from probescale.models.family import backbone, backbone_prefix


@contextmanager
def low_rank_adapters(model: PreTrainedModel, rank: int | None) -> Iterator[None]:
    """While the block lasts, only adapters of this rank and a classifier's head are learned; None: everything is.

    At the end the model has its own modules again, with what was learned in their weights.
    """
    if rank is None:
        yield
        return
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_linear_modules(model))
    adapted = LoraModel(model, {"default": settings}, "default")
    for parameter in _head_parameters(model):
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        adapted.merge_and_unload()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in learned)


def _linear_modules(model: PreTrainedModel) -> list[str]:
    """Names of the matrices of the layers."""
    prefix = backbone_prefix(model)
    modules = backbone(model).named_modules()
    return [prefix + name for name, module in modules if isinstance(module, (nn.Linear, Conv1D))]


def _head_parameters(model: PreTrainedModel) -> list[nn.Parameter]:
    """What is not in the backbone; none for a language model, whose head is as large as its embeddings."""
    if model.get_output_embeddings() is not None:
        return []
    own = {id(parameter) for parameter in backbone(model).parameters()}
    return [parameter for parameter in model.parameters() if id(parameter) not in own]
