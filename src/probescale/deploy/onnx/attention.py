"""Attention as one node of ONNX Runtime's own, for graphs that only it runs, which 8-bit ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

FUSED, IN_STEPS = "onnx-fused", "eager"
NODE = "com.microsoft::MultiHeadAttention"


def choose_attention(model: PreTrainedModel, *, fused: bool) -> str:
    """The way of attention to trace. Families with one of their own, such as T5, know only the one in steps."""
    if not fused or not model._supports_attention_backend:
        return IN_STEPS
    AttentionInterface.register(FUSED, _node)
    AttentionMaskInterface.register(FUSED, ALL_MASK_ATTENTION_FUNCTIONS[IN_STEPS])
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
    """While a graph is traced: stands for the node, and computes nothing."""
    batch, heads, tokens, width = query.shape
    flat = [each.transpose(1, 2).reshape(batch, each.shape[2], heads * width) for each in (query, key, value)]
    attrs = {"num_heads": heads, "scale": float(width**-0.5 if scaling is None else scaling)}
    inputs = [*flat, None, None, attention_mask]  # bias and padding come in other ways
    found = torch.onnx.ops.symbolic(NODE, inputs, attrs, dtype=query.dtype, shape=flat[0].shape, version=1)
    return found.reshape(batch, tokens, heads, width), None


def drop_idle_reshapes(graph: GraphProto) -> None:
    """Heads that are parted and put together again around a node, which parts them itself: eight steps a layer less."""
    shapes = {about.name: _shape(about) for about in graph.value_info}
    made = {node.output[0]: node for node in graph.node if node.op_type == "Reshape"}
    instead = {}
    for name, node in made.items():
        first = made.get(node.input[0])
        if first is not None and shapes.get(name) and shapes[name] == shapes.get(first.input[0]):
            instead[name] = first.input[0]
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = instead.get(name, name)
    outputs = {output.name for output in graph.output}
    for name in instead.keys() - outputs:
        graph.node.remove(made[name])
    used = {name for node in graph.node for name in node.input} | outputs
    for name in made.keys() - instead.keys() - used:
        graph.node.remove(made[name])


def _shape(about: ValueInfoProto) -> tuple[str | int, ...]:
    """Sizes, or the names of those that vary; nothing where one is not known."""
    sizes = tuple(size.dim_param or size.dim_value for size in about.type.tensor_type.shape.dim)
    return sizes if all(sizes) else ()
