"""Sites where states are taken: embeddings and layers, and within a layer its attention, heads and feed-forward part.

A layer's output is taken from the layer itself. The model's own `hidden_states` apply the final norm of a pre-norm
model (T5) to the last layer alone, which makes it incomparable with the others. Attention and feed-forward outputs are
taken before they are added to the residual stream and normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from probescale.config import Granularity
from probescale.errors import UserError
from probescale.models.block_calls import input_state, output_state, removing_hooks
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel


@dataclass(frozen=True)
class Site:
    """A module of the model whose input or output states are taken."""

    part: str  # embeddings, layer, attention, feed_forward or heads
    layer: int  # from 1; 0 for the embeddings
    width: int
    module: nn.Module
    at_input: bool = False  # take the module's input, not its output
    heads: int = 1  # that share the width, where part is heads

    @property
    def name(self) -> str:
        return self.part if self.layer == 0 else f"{self.part}-{self.layer:03d}"


def list_sites(loaded: LoadedModel, granularity: Sequence[Granularity]) -> list[Site]:
    """The sites of a model: embeddings and layers always, sublayers and heads if the granularity names them."""
    family, blocks = loaded.family, loaded.family.layers(loaded.model)
    width = backbone(loaded.model).config.hidden_size
    sites = [Site("embeddings", 0, width, blocks[0], at_input=True)]
    stack = family.stack
    if set(granularity) - {"layer"} and not (stack.attention_output and stack.feed_forward_output):
        raise UserError(
            f'the attention and feed-forward parts in a layer of "{family.name}" are not described',
            field="probing.granularity",
            hint="use [layer], or add the two paths to models/families.py",
        )
    for number, block in enumerate(blocks, 1):
        sites.append(Site("layer", number, width, block))
        if "sublayer" in granularity:
            for part, path in (("attention", stack.attention_output), ("feed_forward", stack.feed_forward_output)):
                sites.append(Site(part, number, width, block.get_submodule(path)))
        if "head" in granularity:
            attention = block.get_submodule(stack.attention_output)
            heads = loaded.model.config.num_attention_heads
            sites.append(Site("heads", number, _input_width(attention), attention, at_input=True, heads=heads))
    return sites


def _input_width(projection: nn.Module) -> int:
    """Input width of a linear layer, or of GPT-2's Conv1D, whose weight is transposed."""
    weight = cast("Tensor", projection.weight)  # (out, in)
    return weight.shape[1] if isinstance(projection, nn.Linear) else weight.shape[0]


@contextmanager
def hook_sites(sites: Sequence[Site], receive: Callable[[int, Tensor], None]) -> Iterator[None]:
    """While open, each forward pass calls `receive(index of the site, state)`; states are (batch, tokens, width)."""
    shape = [0, 0]  # batch, tokens

    def take(index: int, state: Tensor) -> None:
        if state.ndim == 3:
            shape[:] = state.shape[:2]
        receive(index, state.reshape(*shape, -1))  # OPT flattens batch and tokens for its feed-forward part

    def before(index: int) -> Callable[..., None]:
        return lambda _module, args, kwargs: take(index, input_state((args, kwargs)))

    def after(index: int) -> Callable[..., None]:
        return lambda _module, _args, output: take(index, output_state(output))

    handles: list[Any] = []
    for index, site in enumerate(sites):
        if site.at_input:
            handles.append(site.module.register_forward_pre_hook(before(index), with_kwargs=True))
        else:
            handles.append(site.module.register_forward_hook(after(index)))
    with removing_hooks(handles):
        yield
