"""plan: what every number of layers would cost."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import (
    BatchSize,
    Budgets,
    Json,
    Revision,
    quick_imports,
    show,
)


class Dtype(str, Enum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"


class HeadName(str, Enum):
    none = "none"
    sentence = "sentence"
    token = "token"
    regression = "regression"
    lm = "lm"


@app.command()
def plan(
    model: Annotated[
        str, typer.Argument(help="Folder, GGUF file, hub name, or a well-known name such as roberta-large.")
    ],
    budget: Budgets = [],  # noqa: B006
    head: Annotated[HeadName, typer.Option(help="What the model predicts; lm: next or masked tokens.")] = HeadName.none,
    classes: Annotated[int, typer.Option(min=2, help="Number of labels of the head.")] = 2,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens per text, for GFLOPs and ms.", show_default="128, or the model's maximum"),
    ] = None,
    batch_size: BatchSize = 1,
    dtype: Annotated[Dtype, typer.Option(help="How weights are stored, for megabytes.")] = Dtype.float32,
    timed: Annotated[bool, typer.Option("--timed", help="Also measure milliseconds on this machine.")] = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Show what every number of layers would cost; needs only the config, no weights."""
    from probescale.models.facts import built_in_facts
    from probescale.report.plan import plan_facts, plan_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.planning import plan as make_plan
    from probescale.utils.sources import is_local

    limits = parse_budget(budget, where="--") if budget else None
    timed = timed or (limits is not None and "milliseconds" in limits.units)
    facts = None
    if head is HeadName.none and not timed and not revision and not is_local(model):
        facts = built_in_facts(model, length)  # answered at once
    milliseconds = None
    if facts is None:
        with quick_imports():
            from probescale.models.architecture import compute_facts, read_architecture
            from probescale.models.budget_costs import Workload, measure_milliseconds
        what = read_architecture(model, revision)
        facts = compute_facts(what, head.value, classes, length)
        if timed:
            workload = Workload(what.config, what.family, head.value, length=facts.length, batch_size=batch_size)
            milliseconds = measure_milliseconds(workload)
    found = make_plan(
        model,
        facts,
        limits,
        head=head.value,
        batch_size=batch_size,
        dtype=dtype.value,
        milliseconds=milliseconds,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    show(plan_table(found).rich())
    show("")
    for fact in plan_facts(found):
        show(fact)
