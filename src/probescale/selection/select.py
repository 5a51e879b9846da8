"""Choose layers under a budget: Algorithm 1, SelectSubnetwork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probescale.errors import lookup
from probescale.models.subsets import Subset
from probescale.selection.certainty import measure_certainty
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.refusals import nothing_fits, refuse_gap, refuse_useless_scores
from probescale.selection.result import Selection, describe
from probescale.selection.strategies import STRATEGIES, default_for, not_probed


def select(
    evidence: Evidence | Sequence[float],
    constraints: Constraints,
    strategy: str | None = None,
    *,
    resamples: Sequence[Evidence] = (),
    provenance: dict[str, Any] | None = None,
) -> Selection:
    """The strategy's best subset, with as many layers as the constraints allow.

    The relevance of every layer is evidence enough for most strategies. `resamples` holds the same evidence on
    resampled held-out rows; from them the selection says how certain it is.
    """
    evidence = evidence if isinstance(evidence, Evidence) else Evidence(evidence)
    if strategy:
        lookup(STRATEGIES, strategy, field=f"{constraints.budget.where}strategy")
    bounds = constraints.bounds  # before the sizes: a cost that is not known is reported first
    strategy = strategy or default_for(evidence, constraints)
    refuse_gap(strategy, constraints)
    largest = constraints.sizes(evidence.layers)[0]
    refuse_useless_scores(evidence, strategy, largest)
    kept = select_subset(evidence, constraints, strategy)
    if kept is None and not bounds:
        raise not_probed(strategy, tuple(range(1, largest + 1)), constraints.full_structure)
    if kept is None:
        raise nothing_fits(evidence, constraints, strategy)
    certainty = None
    if resamples and STRATEGIES[strategy].by_probes:
        again = [select_subset(resample, constraints, strategy) for resample in resamples]
        certainty = measure_certainty(kept, evidence.layers, [subset for subset in again if subset])
    selection = describe(kept, evidence.relevance, constraints, strategy, provenance)
    return selection.model_copy(update={"certainty": certainty})


def select_subset(evidence: Evidence, constraints: Constraints, strategy: str) -> Subset | None:
    """The layers that `select` keeps; None where nothing fits."""
    refuse_gap(strategy, constraints)
    for k in constraints.sizes(evidence.layers):
        for kept in STRATEGIES[strategy].choose(evidence, k, constraints.full_structure):
            if constraints.allow(kept):
                return kept
    return None


def largest_k(layers: int, constraints: Constraints, strategy: str = "best_scores") -> int:
    """The most layers that a strategy can keep, known before anything is measured; an error where none fits."""
    refuse_gap(strategy, constraints)
    known, parameters = STRATEGIES[strategy], constraints.parameters
    stand_in = strategy if known.reads == "nothing" else "contiguous" if known.contiguous else "best_scores"
    # Negative sizes stand in for scores that are not measured yet: small layers first, so that no fit is overlooked.
    sizes = parameters.layers if parameters else [1] * layers
    relevance = [-size * (1 + layer / 1e9) for layer, size in enumerate(sizes)]
    return select(relevance, constraints, stand_in).k
