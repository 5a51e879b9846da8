"""Choose layers under a budget: Algorithm 1, SelectSubnetwork."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from probescale.errors import UserError, lookup
from probescale.files import Record
from probescale.models.cost import Cost, parameter_cost
from probescale.models.parameters import Parameters
from probescale.selection.budget import Budget, Limit, Unit
from probescale.selection.strategies import STRATEGIES, Subset, score_of

_NAMES: dict[Unit, str] = {
    "parameters": "parameters",
    "gflops": "GFLOPs",
    "megabytes": "MB",
    "milliseconds": "ms",
}


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
    costs: dict[str, float] = Field(default_factory=dict)  # in the other units of the budget
    provenance: dict[str, Any] = Field(default_factory=dict)


def select(
    relevance: Sequence[float],
    budget: Budget,
    parameters: Parameters | None = None,
    strategy: str = "contiguous",
    provenance: dict[str, Any] | None = None,
    costs: Mapping[Unit, Cost] | None = None,
) -> Selection:
    """The strategy's best subset of the largest k that fits the whole budget.

    `costs` holds what layers cost in units other than parameters, for those that the budget limits.
    """
    lookup(STRATEGIES, strategy, field=f"{budget.where}strategy")
    layers = len(relevance)
    if budget.k is not None and budget.k > layers:
        raise UserError(
            f"k={budget.k}, but the model has {layers} layers", field=f"{budget.where}k", hint=f"choose 1 to {layers}"
        )
    known: dict[Unit, Cost] = {**(costs or {}), **({"parameters": parameter_cost(parameters)} if parameters else {})}
    limits = [(limit, *_known(limit, known, budget)) for limit in budget.limits]
    fixed = parameters.fixed if parameters else ()
    sizes = [budget.k] if budget.k and not limits else range(min(budget.k or layers, layers), 0, -1)
    for k in sizes:
        for kept in _subsets(strategy, relevance, k, fixed):
            if all(cost.of(kept) <= most for _, cost, most in limits):
                return describe(kept, relevance, budget, parameters, strategy, provenance, costs)
    raise _nothing_fits(strategy, relevance, fixed, limits, budget)


def describe(
    kept: Subset,
    relevance: Sequence[float],
    budget: Budget,
    parameters: Parameters | None,
    strategy: str,
    provenance: dict[str, Any] | None = None,
    costs: Mapping[Unit, Cost] | None = None,
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
        costs={unit: round(cost.of(kept), 6) for unit, cost in (costs or {}).items()},
        provenance=provenance or {},
    )


def _subsets(strategy: str, relevance: Sequence[float], k: int, fixed: Subset) -> Iterator[Subset]:
    """The strategy's subsets of k layers, best first; layers that have to stay are kept, and it chooses the others."""
    free = [layer for layer in range(1, len(relevance) + 1) if layer not in fixed]
    if k < len(fixed):
        return
    if k == len(fixed):
        yield tuple(fixed)
        return
    for chosen in STRATEGIES[strategy]([relevance[layer - 1] for layer in free], k - len(fixed)):
        yield tuple(sorted((*fixed, *(free[place - 1] for place in chosen))))


def _known(limit: Limit, known: Mapping[Unit, Cost], budget: Budget) -> tuple[Cost, float]:
    if limit.unit not in known:
        raise UserError(
            f"a budget of {limit.text} needs the {_NAMES[limit.unit]} of the layers, which the scores do not carry",
            field=f"{budget.where}budget",
            hint="give k, or --model to count them from its config",
        )
    return known[limit.unit], limit.most(known[limit.unit].total)


def _nothing_fits(
    strategy: str, relevance: Sequence[float], fixed: Subset, limits: list[tuple[Limit, Cost, float]], budget: Budget
) -> UserError:
    """Say how small it gets, and that embeddings are not layers where they alone are too large."""
    smallest = list(_subsets(strategy, relevance, max(len(fixed), 1), fixed))
    for limit, cost, most in limits:
        least = min(cost.of(kept) for kept in smallest)
        if least <= most:
            continue
        percent = math.ceil(1000 * least / cost.total) / 10
        hint = f"the smallest budget is {_amount(least, limit.unit)} ({percent}% of {_amount(cost.total, limit.unit)})"
        if cost.fixed > most and limit.unit in ("parameters", "megabytes"):
            hint += (
                f". Without any layer there are {_amount(cost.fixed, limit.unit)}, "
                f"{_amount(cost.fixed - most, limit.unit)} too many: only a smaller vocabulary or narrower embeddings "
                "would help, or another model"
            )
        return UserError(
            f"{limit.text} allows {_amount(most, limit.unit)}; one layer, the embeddings and the head already have "
            f"{_amount(least, limit.unit)}",
            field=f"{budget.where}budget",
            hint=hint,
        )
    return UserError(f"no subset fits {budget.text} as a whole", field=f"{budget.where}budget", hint="loosen one limit")


def _amount(value: float, unit: Unit) -> str:
    """
    >>> _amount(1_000_000, "parameters"), _amount(3.21, "milliseconds")
    ('1,000,000 parameters', '3.2 ms')
    """
    number = f"{value:,.0f}" if unit == "parameters" else f"{value:,.1f}" if value >= 0.1 else f"{value:.3g}"
    return f"{number} {_NAMES[unit]}"
