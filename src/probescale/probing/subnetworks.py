"""Run subnetworks without cutting them out, each exactly as it will be wired: what begins alike is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from probescale.models.block_calls import BlockCalls, record_calls
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache
from probescale.models.subsets import Subset, format_subset
from probescale.probing.sites import Site


def ends_of(loaded: LoadedModel, subsets: Sequence[Subset]) -> list[Site]:
    """Where states are taken: behind the last layer of each."""
    blocks, width = loaded.family.layers(loaded.model), backbone(loaded.model).config.hidden_size
    return [Site(format_subset(subset), 0, width, blocks[subset[-1] - 1]) for subset in subsets]


def run_subnetworks(
    loaded: LoadedModel, subsets: Sequence[Subset], inputs: dict[str, Tensor], receive: Callable[[int, Tensor], None]
) -> None:
    """Call `receive(number of the subset, state)` for each, in an order that shares beginnings."""
    model = backbone(loaded.model)
    blocks = list(loaded.family.layers(loaded.model))
    wiring = record_calls(blocks, lambda: model(**inputs, **without_cache(model)), outputs=True)
    numbers = {subset: number for number, subset in enumerate(subsets)}
    beginnings = {subset[:end] for subset in subsets for end in range(len(subset) + 1)}
    following: dict[Subset, list[Subset]] = {}
    for beginning in sorted(beginnings - {()}):
        following.setdefault(beginning[:-1], []).append(beginning)
    _walk(wiring, (), wiring.embedded, following, numbers, receive)


def _walk(
    wiring: BlockCalls,
    here: Subset,
    state: Tensor,
    following: dict[Subset, list[Subset]],
    numbers: dict[Subset, int],
    receive: Callable[[int, Tensor], None],
) -> None:
    """Depth first, so that only the states on the way to here are held."""
    for subset in following.get(here, ()):
        own = subset == tuple(range(1, len(subset) + 1))  # the model itself has been here
        after = wiring.outputs[len(subset) - 1] if own else wiring.run_block(subset[-1], state)
        if subset in numbers:
            receive(numbers[subset], after)
        _walk(wiring, subset, after, following, numbers, receive)
