"""Plan for a model that is given by name or path. Heavy libraries are imported only where they are needed."""

from __future__ import annotations

from dataclasses import dataclass

from probescale.config import Head
from probescale.models.facts import built_in_facts
from probescale.selection.budget import Budget
from probescale.selection.planning import Plan, add_shrunk_size, needs_shrinking, plan
from probescale.utils.sources import is_local


@dataclass(frozen=True)
class PlanOptions:
    """What costs are computed for."""

    head: Head = "none"
    classes: int = 2  # labels of the head
    length: int | None = None  # tokens per text; None: 128, or the model's maximum
    batch_size: int = 1
    dtype: str = "float32"  # of the stored weights
    timed: bool = False  # measure milliseconds, also without a budget in milliseconds
    revision: str | None = None


def plan_model(model: str, budget: Budget | None = None, options: PlanOptions | None = None) -> Plan:
    """What every number of layers would cost; what shrinking brings, where dropping layers alone is not enough."""
    options = options or PlanOptions()
    head, timed = options.head, options.timed or (budget is not None and "milliseconds" in budget.units)
    facts = milliseconds = architecture = None
    if head == "none" and not timed and not options.revision and not is_local(model):
        facts = built_in_facts(model, options.length)  # answered at once
    if facts is None:
        from probescale.models.architecture import compute_facts, read_architecture
        from probescale.models.budget_costs import Workload, measure_milliseconds

        architecture = read_architecture(model, options.revision)
        facts = compute_facts(architecture, head, options.classes, options.length)
        if timed:
            batch_size, config, family = options.batch_size, architecture.config, architecture.family
            workload = Workload(config, family, head, length=facts.length, batch_size=batch_size)
            milliseconds = measure_milliseconds(workload)
    planned = plan(
        model,
        facts,
        budget,
        head=head,
        batch_size=options.batch_size,
        dtype=options.dtype,
        milliseconds=milliseconds,
    )
    if budget is None or not needs_shrinking(planned, budget):
        return planned

    from probescale.models.architecture import read_architecture
    from probescale.models.shrink.options import count_smallest

    smallest = count_smallest(architecture or read_architecture(model), head, options.classes)
    return add_shrunk_size(planned, budget, *smallest) if smallest else planned
