"""What every number of layers would cost, known before weights are loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from probescale.errors import UserError
from probescale.models.cost import Cost, parameter_cost
from probescale.models.facts import Facts
from probescale.models.parameters import Parameters
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.selection.budget import Budget, Unit
from probescale.selection.constraints import Constraints
from probescale.selection.select import largest_k
from probescale.utils.files import Record

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


class Size(Record):
    """Size and cost of the first k layers (of any k layers, where all have the same size)."""

    k: int
    params: int
    ratio_total: float
    ratio_layers: float
    gflops: float | None  # None: cannot be counted without weights
    megabytes: float
    milliseconds: float | None = None
    within: bool = False  # fits the budget


class ShrunkSize(Record):
    """How small the model gets where vocabulary, embeddings and feed-forward parts are shrunk too."""

    shrink: ShrinkPlan
    one_layer: int  # parameters with one layer
    budget: str  # the limits on stored size
    fits: int  # the largest k within these limits; 0: nothing fits


class Plan(Record):
    """What every number of layers costs, and how many layers a budget allows."""

    model: str
    family: str
    part: str
    layers_at: str
    parameters: Parameters
    head: str
    dtype: str
    length: int
    batch_size: int
    sizes: tuple[Size, ...]  # largest first
    budget: str | None = None
    fits: int | None = None  # the largest k within the budget; 0: nothing fits
    shrunk: ShrunkSize | None = None  # where dropping layers alone is not enough, and other parts can be shrunk
    notes: tuple[str, ...] = Field(default=())


def plan(
    model: str,
    facts: Facts,
    budget: Budget | None = None,
    *,
    head: str = "none",
    batch_size: int = 1,
    dtype: str = "float32",
    milliseconds: Cost | None = None,
) -> Plan:
    """Size and cost for every number of layers, and the most layers that fit the budget, or why none fits."""
    parameters, layers = facts.parameters, len(facts.parameters.layers)
    megabytes = _count_megabytes(parameters, dtype)
    by_unit: dict[Unit, Cost | None] = {"gflops": facts.gflops, "megabytes": megabytes, "milliseconds": milliseconds}
    costs: dict[Unit, Cost] = {unit: cost for unit, cost in by_unit.items() if cost is not None}
    fits, why_not = _count_fitting(budget, parameters, costs) if budget else (None, [])
    return Plan(
        model=model,
        family=facts.family,
        part=facts.part,
        layers_at=facts.layers_at,
        parameters=parameters,
        head=head,
        dtype=dtype,
        length=facts.length,
        batch_size=batch_size,
        sizes=tuple(_describe_size(k, parameters, costs, budget) for k in range(layers, 0, -1)),
        budget=budget.text if budget else None,
        fits=fits,
        notes=(*why_not, *_list_notes(facts)),
    )


def needs_shrinking(plan: Plan, budget: Budget) -> bool:
    """Whether layers alone do not reach the budget, or what is not a layer takes up more than half of it."""
    stored = _constrain_stored_size(plan, budget, plan.parameters)
    return any(
        bound.cost.fixed > bound.most / 2 or bound.cost.fixed + min(bound.cost.layers) > bound.most
        for bound in stored.bounds
    )


def add_shrunk_size(plan: Plan, budget: Budget, shrink: ShrinkPlan, parameters: Parameters) -> Plan:
    """The plan with what this way of shrinking brings; `parameters` are those of the shrunk model."""
    stored = _constrain_stored_size(plan, budget, parameters)
    try:
        fits = largest_k(len(parameters.layers), stored)
    except UserError:
        fits = 0
    shrunk = ShrunkSize(shrink=shrink, one_layer=parameters.minimum, budget=stored.budget.text, fits=fits)
    return plan.model_copy(update={"shrunk": shrunk})


def _constrain_stored_size(plan: Plan, budget: Budget, parameters: Parameters) -> Constraints:
    """The limits of the budget on parameters and megabytes, for a model with these parameters."""
    limits = tuple(limit for limit in budget.limits if limit.unit in ("parameters", "megabytes"))
    stored = replace(budget, text=", ".join(limit.text for limit in limits), limits=limits)
    return Constraints(stored, parameters, {"megabytes": _count_megabytes(parameters, plan.dtype)})


def _count_megabytes(parameters: Parameters, dtype: str) -> Cost:
    return parameter_cost(parameters).scaled(BYTES[dtype] / 1e6)


def _count_fitting(budget: Budget, parameters: Parameters, costs: Mapping[Unit, Cost]) -> tuple[int, list[str]]:
    """The largest k within the budget; or 0 and the reasons, which a plan shows as notes."""
    try:
        return largest_k(len(parameters.layers), Constraints(budget, parameters, costs)), []
    except UserError as error:
        return 0, [f"{error.message}.", f"{error.hint[0].upper()}{error.hint[1:]}."]


def _describe_size(k: int, parameters: Parameters, costs: Mapping[Unit, Cost], budget: Budget | None) -> Size:
    kept = range(1, k + 1)
    ratio_total, ratio_layers = parameters.ratios(kept)
    gflops, milliseconds = costs.get("gflops"), costs.get("milliseconds")
    all_costs: dict[Unit, Cost] = {**costs, "parameters": parameter_cost(parameters)}
    limits = [(all_costs[limit.unit], limit) for limit in (budget.limits if budget else ()) if limit.unit in all_costs]
    return Size(
        k=k,
        params=parameters.of(kept),
        ratio_total=ratio_total,
        ratio_layers=ratio_layers,
        gflops=gflops.of(kept) if gflops else None,
        megabytes=costs["megabytes"].of(kept),
        milliseconds=milliseconds.of(kept) if milliseconds else None,
        within=bool(limits) and all(cost.of(kept) <= limit.most(cost.total) for cost, limit in limits),
    )


def _list_notes(facts: Facts) -> Sequence[str]:
    parameters, notes = facts.parameters, []
    if len(set(parameters.layers)) > 1:
        notes.append("Layers differ in size; each row keeps the first ones. A selection counts those it keeps.")
    if facts.layer_1_stays:
        notes.append(f"Layer 1 always stays: {facts.layer_1_stays}.")
    if parameters.decoder:
        notes.append(f"The decoder's {len(parameters.decoder)} layers are all kept here.")
    share = parameters.embeddings / parameters.total
    if share > 0.1:
        most = parameters.total / parameters.minimum
        notes.append(
            f"The embeddings are {share:.0%} of the model: dropping layers makes it at most {most:.1f} times smaller."
        )
    return notes
