"""plan: what every number of layers would cost."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import BatchSize, Budgets, Json, Revision, quick_imports, show, show_json


class Dtype(str, Enum):
    """Number formats of --dtype."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"


class HeadName(str, Enum):
    """Heads of --head."""

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
    from probescale.report.plan import plan_facts, plan_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.plan_model import PlanOptions, plan_model

    limits = parse_budget(budget, where="--") if budget else None
    options = PlanOptions(head.value, classes, length, batch_size, dtype.value, timed, revision)
    with quick_imports():
        planned = plan_model(model, limits, options)
    if as_json:
        show_json(planned)
        return
    show(plan_table(planned).rich())
    show("")
    for fact in plan_facts(planned):
        show(fact)
