"""Choose layers under a budget: Algorithm 1, SelectSubnetwork."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from probescale.errors import UserError, lookup
from probescale.files import Record
from probescale.models.parameters import Parameters
from probescale.selection.budget import Budget
from probescale.selection.strategies import STRATEGIES, Subset, score_of


class Selection(Record):
    """The chosen layers, numbered from 1, and what they cost. Saved as selection.json."""

    strategy: str
    budget: str
    k: int
    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    score: float  # sum of relevance over the kept layers
    params: int | None = None  # None: the sizes of the layers are not known
    params_original: int | None = None
    ratio_total: float | None = None  # of all parameters, embeddings and head included
    ratio_layers: float | None = None  # of the parameters in layers
    provenance: dict[str, Any] = Field(default_factory=dict)


def select(
    relevance: Sequence[float],
    budget: Budget,
    parameters: Parameters | None = None,
    strategy: str = "contiguous",
    provenance: dict[str, Any] | None = None,
) -> Selection:
    """The strategy's best subset of the largest k whose parameters fit the budget."""
    rule = lookup(STRATEGIES, strategy, field="selection.strategy")
    layers = len(relevance)
    if budget.k is not None:
        if budget.k > layers:
            raise UserError(
                f"k={budget.k}, but the model has {layers} layers",
                field=f"{budget.where}k",
                hint=f"choose 1 to {layers}",
            )
        kept = next(rule(relevance, budget.k))
    elif parameters is None:
        raise UserError(
            f"a budget of {budget.text} needs the sizes of the layers, which the scores do not carry",
            field=f"{budget.where}budget",
            hint="give k, or --model to count them from its config",
        )
    else:
        kept = _largest_fit(relevance, budget, parameters, strategy)
    return describe(kept, relevance, budget, parameters, strategy, provenance)


def describe(
    kept: Subset,
    relevance: Sequence[float],
    budget: Budget,
    parameters: Parameters | None,
    strategy: str,
    provenance: dict[str, Any] | None = None,
) -> Selection:
    """Everything there is to say about a subset."""
    ratio_total, ratio_layers = parameters.ratios(kept) if parameters else (None, None)
    return Selection(
        strategy=strategy,
        budget=budget.text,
        k=len(kept),
        kept=kept,
        dropped=tuple(layer for layer in range(1, len(relevance) + 1) if layer not in kept),
        score=score_of(relevance, kept),
        params=parameters.of(kept) if parameters else None,
        params_original=parameters.total if parameters else None,
        ratio_total=ratio_total,
        ratio_layers=ratio_layers,
        provenance=provenance or {},
    )


def _largest_fit(relevance: Sequence[float], budget: Budget, parameters: Parameters, strategy: str) -> Subset:
    limit = budget.limit(parameters.total)
    assert limit is not None
    for k in range(len(relevance), 0, -1):
        for kept in STRATEGIES[strategy](relevance, k):
            if parameters.of(kept) <= limit:
                return kept
    smallest = min(parameters.of(kept) for kept in STRATEGIES[strategy](relevance, 1))
    percent = math.ceil(1000 * smallest / parameters.total) / 10
    raise UserError(
        f"{budget.text} allows {limit:,} parameters; one layer, the embeddings and the head already have {smallest:,}",
        field=f"{budget.where}budget",
        hint=f"the smallest budget is {smallest:,} ({percent}% of {parameters.total:,})",
    )
