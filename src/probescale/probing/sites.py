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
from probescale.models.families import backbone
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
    family, blocks = loaded.family, loaded.family.stack(loaded.model)
    width = backbone(loaded.model).config.hidden_size
    sites = [Site("embeddings", 0, width, blocks[0], at_input=True)]
    for number, block in enumerate(blocks, 1):
        attention = cast("nn.Linear", block.get_submodule(family.attention))
        feed_forward = cast("nn.Linear", block.get_submodule(family.feed_forward))
        sites.append(Site("layer", number, width, block))
        if "sublayer" in granularity:
            sites.append(Site("attention", number, attention.out_features, attention))
            sites.append(Site("feed_forward", number, feed_forward.out_features, feed_forward))
        if "head" in granularity:
            sites.append(Site("heads", number, attention.in_features, attention, at_input=True))
    return sites


@contextmanager
def states_at(sites: Sequence[Site], receive: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `receive(number of the site, state)` whenever the model passes one; states are (batch, tokens, width)."""

    def before(number: int) -> Callable[..., None]:
        return lambda _module, args, kwargs: receive(number, args[0] if args else kwargs["hidden_states"])

    def after(number: int) -> Callable[..., None]:
        return lambda _module, _args, output: receive(number, output[0] if isinstance(output, tuple) else output)

    handles: list[Any] = []
    for number, site in enumerate(sites):
        if site.at_input:
            handles.append(site.module.register_forward_pre_hook(before(number), with_kwargs=True))
        else:
            handles.append(site.module.register_forward_hook(after(number)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
