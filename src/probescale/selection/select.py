"""Choose layers under a budget: Algorithm 1, SelectSubnetwork."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from probescale.errors import UserError, lookup
from probescale.models.cost import Cost, parameter_cost
from probescale.models.parameters import Parameters
from probescale.models.subsets import Subset
from probescale.selection.budget import Budget, Limit, Unit
from probescale.selection.certainty import Certainty, certainty_of
from probescale.selection.evidence import Evidence
from probescale.selection.strategies import STRATEGIES, default_for, not_probed, score_of
from probescale.selection.structure import Structure
from probescale.utils.files import Record

_APART = {"contiguous": "best_scores", "stitched": "stitched_search"}  # the same criterion without neighbours
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
    certainty: Certainty | None = None  # where the scores were resampled and the strategy goes by them
    reason: str = ""  # in a sentence, where it was chosen by trials
    params: int | None = None  # None: the sizes of the layers are not known
    params_original: int | None = None
    ratio_total: float | None = None  # of all parameters, embeddings and head included
    ratio_layers: float | None = None  # of the parameters in layers
    costs: dict[str, float] = Field(default_factory=dict)  # in the other units of the budget
    provenance: dict[str, Any] = Field(default_factory=dict)


def select(
    evidence: Evidence | Sequence[float],
    budget: Budget,
    parameters: Parameters | None = None,
    strategy: str | None = None,
    provenance: dict[str, Any] | None = None,
    costs: Mapping[Unit, Cost] | None = None,
    structure: Structure | None = None,
    resamples: Sequence[Evidence] = (),
) -> Selection:
    """The strategy's best subset of the largest k that fits the whole budget; the relevance alone is evidence, too.

    `costs` holds what layers cost in units other than parameters, for those that the budget limits. `resamples` are
    the same evidence on other held-out rows, to say how sure the choice is.
    """
    evidence = evidence if isinstance(evidence, Evidence) else Evidence(evidence)
    strategy = strategy or default_for(evidence)
    lookup(STRATEGIES, strategy, field=f"{budget.where}strategy")
    limits = _limits(budget, parameters, costs)
    structure = (structure or Structure(where=budget.where)).also(parameters.fixed if parameters else ())
    sizes = _sizes(evidence, budget, strategy, structure)
    _refuse_unusable(evidence, strategy, budget, sizes)
    kept = _best(evidence, strategy, sizes, structure, limits)
    if kept is None and not limits:
        raise not_probed(strategy, tuple(range(1, sizes[0] + 1)), structure)
    if kept is None:
        raise _nothing_fits(strategy, evidence, structure, limits, budget)
    certainty = None
    if resamples and STRATEGIES[strategy].reads not in ("nothing", "flow", "trials"):
        again = [_best(one, strategy, sizes, structure, limits) for one in resamples]
        certainty = certainty_of(kept, evidence.layers, [subset for subset in again if subset])
    found = describe(kept, evidence.relevance, budget, parameters, strategy, provenance, costs)
    return found.model_copy(update={"certainty": certainty})


def fitting(
    evidence: Evidence,
    budget: Budget,
    parameters: Parameters,
    strategy: str,
    costs: Mapping[Unit, Cost] | None = None,
    structure: Structure | None = None,
) -> Subset | None:
    """What `select` would keep with such parameters; None where nothing fits."""
    limits = _limits(budget, parameters, costs)
    structure = (structure or Structure(where=budget.where)).also(parameters.fixed)
    return _best(evidence, strategy, _sizes(evidence, budget, strategy, structure), structure, limits)


def _best(
    evidence: Evidence,
    strategy: str,
    sizes: Sequence[int],
    structure: Structure,
    limits: Sequence[tuple[Limit, Cost, float]],
) -> Subset | None:
    for k in sizes:
        for kept in STRATEGIES[strategy].choose(evidence, k, structure):
            if all(cost.of(kept) <= most for _, cost, most in limits):
                return kept
    return None


def largest(
    layers: int,
    budget: Budget,
    parameters: Parameters | None = None,
    strategy: str = "best_scores",
    costs: Mapping[Unit, Cost] | None = None,
    structure: Structure | None = None,
) -> int:
    """How many layers a strategy can keep at most: known before anything is measured, and refused where none fits."""
    _refuse_gap(strategy, structure or Structure(), budget.k)
    known = STRATEGIES[strategy]
    stand_in = strategy if known.reads == "nothing" else "contiguous" if known.neighbours else "best_scores"
    # Prices stand for the scores that are not known yet: cheap layers first, so that none is overlooked.
    prices = parameters.layers if parameters else [1] * layers
    made_up = [-price * (1 + layer / 1e9) for layer, price in enumerate(prices)]
    return select(made_up, budget, parameters, stand_in, costs=costs, structure=structure).k


def _limits(
    budget: Budget, parameters: Parameters | None, costs: Mapping[Unit, Cost] | None
) -> list[tuple[Limit, Cost, float]]:
    known: dict[Unit, Cost] = {**(costs or {}), **({"parameters": parameter_cost(parameters)} if parameters else {})}
    return [(limit, *_known(limit, known, budget)) for limit in budget.limits]


def _sizes(evidence: Evidence, budget: Budget, strategy: str, structure: Structure) -> list[int]:
    """Numbers of layers to try, the largest first; wishes that contradict each other are refused."""
    layers, wished = evidence.layers, budget.k
    if wished is not None and wished > layers:
        raise UserError(
            f"k={wished}, but the model has {layers} layers", field=f"{budget.where}k", hint=f"choose 1 to {layers}"
        )
    _refuse_gap(strategy, structure, wished)
    possible = structure.sizes(layers)
    least, most = possible[0], possible[-1]
    if wished is not None and wished not in possible:
        raise UserError(
            f"k={wished}, but between {least} and {most} layers can have the wished structure",
            field=f"{budget.where}k",
            hint=f"choose {least} to {most}, or change {structure.where}keep or {structure.where}gap",
        )
    if wished is not None and not budget.limits:
        return [wished]
    return [k for k in reversed(possible) if k <= (wished or most)]


def _refuse_gap(strategy: str, structure: Structure, wished: int | None) -> None:
    if STRATEGIES[strategy].neighbours and structure.gap > 1 and wished != 1:
        raise UserError(
            f"{strategy} keeps neighbouring layers, which a gap of {structure.gap} forbids",
            field=f"{structure.where}gap",
            hint=f"use a gap of 1, or another strategy, such as {_APART[strategy]}",
        )


def _refuse_unusable(evidence: Evidence, strategy: str, budget: Budget, sizes: Sequence[int]) -> None:
    """Scores that are missing or say nothing would still give an answer: a wrong one."""
    relevance = list(evidence.relevance)
    if bad := [layer for layer, value in enumerate(relevance, 1) if not math.isfinite(value)]:
        raise UserError(
            f"the score of layer {bad[0]} is {relevance[bad[0] - 1]}", field="SCORES", hint="give finite scores"
        )
    read = {"relevance": relevance, "flow": list(evidence.influence or ()), "blocks": _same_size(evidence, sizes)}
    values = read.get(STRATEGIES[strategy].reads, [])
    if len(values) > 1 and max(values) == min(values) and sizes[0] < evidence.layers:
        raise UserError(
            f"{strategy} chooses by scores, and all of them are {values[0]:g}: they do not say which layers to keep",
            field="SCORES",
            hint="probe with more data or another property, or use bottom_k, which needs no scores",
        )


def _same_size(evidence: Evidence, sizes: Sequence[int]) -> list[float]:
    return [value for subset, value in evidence.subnetworks.items() if len(subset) == sizes[0]]


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
        params_original=(parameters.original or parameters).total if parameters else None,
        ratio_total=ratio_total,
        ratio_layers=ratio_layers,
        costs={unit: round(cost.of(kept), 6) for unit, cost in (costs or {}).items()},
        provenance=provenance or {},
    )


def _known(limit: Limit, known: Mapping[Unit, Cost], budget: Budget) -> tuple[Cost, float]:
    if limit.unit not in known:
        raise UserError(
            f"a budget of {limit.text} needs the {_NAMES[limit.unit]} of the layers, which the scores do not carry",
            field=f"{budget.where}budget",
            hint="give k, or --model to count them from its config",
        )
    return known[limit.unit], limit.most(known[limit.unit].total)


def _nothing_fits(
    strategy: str,
    evidence: Evidence,
    structure: Structure,
    limits: list[tuple[Limit, Cost, float]],
    budget: Budget,
) -> UserError:
    """Say how small it gets, and that embeddings are not layers where they alone are too large."""
    smallest = list(STRATEGIES[strategy].choose(evidence, structure.sizes(evidence.layers)[0], structure))
    for limit, cost, most in limits:
        least = min(cost.of(kept) for kept in smallest)
        if least <= most:
            continue
        percent = math.ceil(1000 * least / cost.total) / 10
        hint = f"the smallest budget is {_amount(least, limit.unit)} ({percent}% of {_amount(cost.total, limit.unit)})"
        beside = limit.unit in ("parameters", "megabytes")
        if cost.fixed > most and beside:
            hint += (
                f". Without any layer there are {_amount(cost.fixed, limit.unit)}, "
                f"{_amount(cost.fixed - most, limit.unit)} too many"
            )
        if beside and cost.original is None:
            hint += ". A smaller vocabulary or narrower embeddings would help: `shrink: auto` in a run's settings"
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
