"""Run subnetworks inside the model, with the states they have after the cut; shared first layers run once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from probescale.models.block_calls import record_calls
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache
from probescale.models.subsets import Subset, format_subset
from probescale.probing.sites import Site


def list_subnetwork_sites(loaded: LoadedModel, subsets: Sequence[Subset]) -> list[Site]:
    """One site per subnetwork: the output of its last layer."""
    blocks, width = loaded.family.layers(loaded.model), backbone(loaded.model).config.hidden_size
    return [Site(format_subset(subset), 0, width, blocks[subset[-1] - 1]) for subset in subsets]


def run_subnetworks(
    loaded: LoadedModel, subsets: Sequence[Subset], inputs: dict[str, Tensor], receive: Callable[[int, Tensor], None]
) -> None:
    """Call `receive(index of the subset, state)` for each subset. Layers that subsets start with in common run once."""
    model = backbone(loaded.model)
    blocks = list(loaded.family.layers(loaded.model))
    recorded = record_calls(blocks, lambda: model(**inputs, **without_cache(model)), outputs=True)
    indices = {subset: index for index, subset in enumerate(subsets)}
    prefixes = {subset[:end] for subset in subsets for end in range(len(subset) + 1)}
    continuations: dict[Subset, list[Subset]] = {}  # of every prefix, by one more layer
    for prefix in sorted(prefixes - {()}):
        continuations.setdefault(prefix[:-1], []).append(prefix)

    def visit(prefix: Subset, state: Tensor) -> None:
        """Depth first, so that only the states on the current path are held."""
        for subset in continuations.get(prefix, ()):
            known = subset == tuple(range(1, len(subset) + 1))  # the recorded pass has computed it
            after = recorded.outputs[len(subset) - 1] if known else recorded.run_block(subset[-1], state)
            if subset in indices:
                receive(indices[subset], after)
            visit(subset, after)

    visit((), recorded.embedded)
