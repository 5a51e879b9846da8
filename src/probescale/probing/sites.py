"""Where states are taken: the embeddings, every layer, and in it the attention, its heads, the feed-forward part.

Outputs are taken at the blocks themselves. The model's own `hidden_states` would put the final norm on the last layer
of a pre-norm model (T5) alone, which makes that layer not comparable with the others. Parts of a block are taken as
what they add to the stream, before the residual sum and its norm.
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
    part: str  # embeddings, layer, attention, feed_forward or heads
    layer: int  # from 1; 0 for the embeddings
    width: int
    module: nn.Module
    at_input: bool = False  # take what goes into the module, not what comes out

    @property
    def name(self) -> str:
        return self.part if self.layer == 0 else f"{self.part}-{self.layer:03d}"


def sites_of(loaded: LoadedModel, granularity: Sequence[Granularity]) -> list[Site]:
    """Embeddings and layers always; sublayers and heads where they are asked for."""
    family, blocks = loaded.family, loaded.family.layers(loaded.model)
    width = backbone(loaded.model).config.hidden_size
    sites = [Site("embeddings", 0, width, blocks[0], at_input=True)]
    stack = family.stack
    if set(granularity) - {"layer"} and not (stack.attention_output and stack.feed_forward_output):
        raise UserError(
            f'nobody has described where a layer of "{family.name}" has its attention and feed-forward part',
            field="probing.granularity",
            hint="use layer; or add the two paths to models/families.py",
        )
    for number, block in enumerate(blocks, 1):
        sites.append(Site("layer", number, width, block))
        if "sublayer" in granularity:
            for part, path in (("attention", stack.attention_output), ("feed_forward", stack.feed_forward_output)):
                sites.append(Site(part, number, width, block.get_submodule(path)))
        if "head" in granularity:
            attention = block.get_submodule(stack.attention_output)
            sites.append(Site("heads", number, _width_in(attention), attention, at_input=True))
    return sites


def _width_in(projection: nn.Module) -> int:
    """Of a linear layer, or of GPT-2's, whose weight lies the other way round."""
    weight = cast("Tensor", projection.weight)  # (out, in)
    return weight.shape[1] if isinstance(projection, nn.Linear) else weight.shape[0]


@contextmanager
def states_at(sites: Sequence[Site], receive: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `receive(number of the site, state)` whenever the model passes one; states are (batch, tokens, width)."""

    rows = [0, 0]  # batch, tokens

    def take(number: int, state: Tensor) -> None:
        if state.ndim == 3:
            rows[:] = state.shape[:2]
        receive(number, state.reshape(*rows, -1))  # OPT's feed-forward part sees all tokens in one row

    def before(number: int) -> Callable[..., None]:
        return lambda _module, args, kwargs: take(number, input_state((args, kwargs)))

    def after(number: int) -> Callable[..., None]:
        return lambda _module, _args, output: take(number, output_state(output))

    handles: list[Any] = []
    for number, site in enumerate(sites):
        if site.at_input:
            handles.append(site.module.register_forward_pre_hook(before(number), with_kwargs=True))
        else:
            handles.append(site.module.register_forward_hook(after(number)))
    with removing_hooks(handles):
        yield
