"""Attention as a single node that only ONNX Runtime has; for 8-bit graphs, which run only there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

FUSED, EAGER = "onnx-fused", "eager"
NODE = "com.microsoft::MultiHeadAttention"


def choose_attention(model: PreTrainedModel, *, fused: bool) -> str:
    """The attention implementation to trace. Families with their own attention, such as T5, only have the eager one."""
    if not fused or not model._supports_attention_backend:
        return EAGER
    AttentionInterface.register(FUSED, _node)
    AttentionMaskInterface.register(FUSED, ALL_MASK_ATTENTION_FUNCTIONS[EAGER])
    return FUSED


def _node(
    module: nn.Module,
    query: Tensor,  # (batch, heads, tokens, width), like key and value
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Stands for the node while a graph is traced; computes nothing."""
    batch, heads, tokens, width = query.shape
    flat = [each.transpose(1, 2).reshape(batch, each.shape[2], heads * width) for each in (query, key, value)]
    attrs = {"num_heads": heads, "scale": float(width**-0.5 if scaling is None else scaling)}
    inputs = [*flat, None, None, attention_mask]  # no bias and no key padding mask: the attention mask covers padding
    states = torch.onnx.ops.symbolic(NODE, inputs, attrs, dtype=query.dtype, shape=flat[0].shape, version=1)
    return states.reshape(batch, tokens, heads, width), None


def drop_idle_reshapes(graph: GraphProto) -> None:
    """Remove reshapes that split states into heads and join them again: the attention node splits them itself.

    Saves eight nodes per layer.
    """
    shapes = {value.name: _shape(value) for value in graph.value_info}
    reshapes = {node.output[0]: node for node in graph.node if node.op_type == "Reshape"}
    replacements = {}
    for name, node in reshapes.items():
        first = reshapes.get(node.input[0])
        if first is not None and shapes.get(name) and shapes[name] == shapes.get(first.input[0]):
            replacements[name] = first.input[0]
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = replacements.get(name, name)
    outputs = {output.name for output in graph.output}
    for name in replacements.keys() - outputs:
        graph.node.remove(reshapes[name])
    used = {name for node in graph.node for name in node.input} | outputs
    for name in reshapes.keys() - replacements.keys() - used:
        graph.node.remove(reshapes[name])


def _shape(value: ValueInfoProto) -> tuple[str | int, ...]:
    """The sizes of a value, with names for those that vary; empty if one is unknown."""
    sizes = tuple(size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim)
    return sizes if all(sizes) else ()
