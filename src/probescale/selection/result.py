"""The result of a selection: which layers are kept, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from probescale.models.subsets import Subset
from probescale.selection.certainty import Certainty
from probescale.selection.constraints import Constraints
from probescale.selection.strategies import sum_relevance
from probescale.utils.files import Record


class Selection(Record):
    """The selected layers, numbered from 1, and what they cost. Saved as selection.json."""

    strategy: str
    budget: str
    k: int
    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    score: float  # sum of relevance over the kept layers
    certainty: Certainty | None = None  # None: the scores are not resampled, or the strategy does not read them
    reason: str = ""  # where a tournament decided, or weights that were fitted to figures
    params: int | None = None  # None: the sizes of the layers are not known
    params_original: int | None = None
    ratio_total: float | None = None  # of all parameters, embeddings and head included
    ratio_layers: float | None = None  # of the parameters in layers
    costs: dict[str, float] = Field(default_factory=dict)  # in the other units of the budget
    provenance: dict[str, Any] = Field(default_factory=dict)


def describe(
    kept: Subset,
    relevance: Sequence[float],
    constraints: Constraints,
    strategy: str,
    provenance: dict[str, Any] | None = None,
) -> Selection:
    """The Selection of given layers, with their score, sizes and costs."""
    parameters = constraints.parameters
    ratio_total, ratio_layers = parameters.ratios(kept) if parameters else (None, None)
    return Selection(
        strategy=strategy,
        budget=constraints.budget.text,
        k=len(kept),
        kept=kept,
        dropped=tuple(layer for layer in range(1, len(relevance) + 1) if layer not in kept),
        score=sum_relevance(relevance, kept),
        params=parameters.of(kept) if parameters else None,
        params_original=(parameters.original or parameters).total if parameters else None,
        ratio_total=ratio_total,
        ratio_layers=ratio_layers,
        costs={
            unit: round(cost.of(kept), 6)
            for unit, cost in constraints.known_costs.items()
            if unit in constraints.costs or unit in constraints.budget.units - {"parameters"}
        },
        provenance=provenance or {},
    )
