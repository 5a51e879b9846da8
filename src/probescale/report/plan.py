"""What `probescale plan` prints."""

from __future__ import annotations

from probescale.report.table import Table
from probescale.selection.planning import Plan, ShrunkSize, Size


def plan_table(plan: Plan) -> Table:
    """One row per number of layers; rows within the budget are highlighted."""
    timed = plan.sizes[0].milliseconds is not None
    header = ("layers", "parameters", "of\ntotal", "of\nlayers", "times\nsmaller", "GFLOPs", "on disk")
    rows = [_row(size, plan, timed) for size in plan.sizes]
    within = frozenset(i for i, size in enumerate(plan.sizes) if size.within)
    return Table(plan_title(plan), header + (("ms,\nfloat32",) if timed else ()), tuple(rows), within)


def plan_title(plan: Plan) -> str:
    """The model, its head, the type of its weights, and the length that costs are computed for."""
    heads = {"none": "no head", "lm": "language modelling head"}
    at = f"{plan.length} tokens" + (f", batch {plan.batch_size}" if plan.sizes[0].milliseconds is not None else "")
    part = f" ({plan.part})" if plan.part else ""
    return f"{plan.model}: {plan.family}{part}, {heads.get(plan.head, plan.head + ' head')}, {plan.dtype} on disk, {at}"


def plan_facts(plan: Plan) -> list[str]:
    """Where the parameters are, how many layers fit the budget, and notes."""
    p = plan.parameters
    sizes = sorted(set(p.layers))
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    decoder = f", decoder {sum(p.decoder):,}" if p.decoder else ""
    facts = [
        f"{p.total:,} parameters: embeddings {p.embeddings:,}, {len(p.layers)} layers of {each}{decoder}, "
        f"rest {p.rest:,}"
    ]
    if plan.fits:
        alike = "" if len(set(p.layers)) == 1 and plan.sizes[0].milliseconds is None else "neighbouring "
        facts.append(f"{plan.budget}: {_say_fits(plan.fits, alike)}")
    elif plan.fits == 0:
        facts.append(f"{plan.budget}: nothing fits")
    return [*facts, *plan.notes, *([describe_shrunk(plan.shrunk)] if plan.shrunk else [])]


def describe_shrunk(size: ShrunkSize) -> str:
    """What `shrink: auto` would bring, with the vocabulary size that is assumed."""
    parts = [f"assuming that your texts need {size.shrink.vocabulary:,} tokens"] if size.shrink.vocabulary else []
    if others := size.shrink.model_copy(update={"vocabulary": None}):
        parts.append(str(others))
    fits = f"and {_say_fits(size.fits)} {size.budget}" if size.fits else f"which {size.budget} does not allow"
    return f"With `shrink: auto` ({'; '.join(parts)}) one layer needs {size.one_layer:,} parameters, {fits}."


def _say_fits(layers: int, kind: str = "") -> str:
    return f"up to {layers} {kind}layers fit" if layers > 1 else "one layer fits"


def _row(size: Size, plan: Plan, timed: bool) -> tuple[str, ...]:
    cells = (
        str(size.k),
        f"{size.params:,}",
        f"{size.ratio_total:.1%}",
        f"{size.ratio_layers:.1%}",
        f"{plan.parameters.total / size.params:.2f}",
        "unknown" if size.gflops is None else f"{size.gflops:.2f}",
        f"{size.megabytes:,.0f} MB",
    )
    return (*cells, f"{size.milliseconds:.1f}") if timed else cells
