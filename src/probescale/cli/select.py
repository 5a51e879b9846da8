"""select: which layers to keep, from probe scores."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Budgets, Json, Overwrite, show, show_json

STRUCTURE, WEIGHING, COSTS = "Structure of the subnetwork", "What the scores are worth", "Costs of the layers"


class Credit(str, Enum):
    """Ways to credit a layer with probe scores."""

    absolute = "absolute"
    marginal = "marginal"


Scores = Annotated[
    list[Path],
    typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score; several: one task each."),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        help="See `probescale list strategies`.",
        show_default="stitched, or contiguous without probes of all blocks or with --weight, --metric, ...",
    ),
]
Keep = Annotated[
    str | None, typer.Option(help="Layers that are always kept, such as 1 or 1,12.", rich_help_panel=STRUCTURE)
]
Gap = Annotated[
    int, typer.Option(min=1, help="Smallest distance between two kept layers; 1: any.", rich_help_panel=STRUCTURE)
]
Neighbours = Annotated[
    bool, typer.Option("--neighbours", help="Keep neighbouring layers only.", rich_help_panel=STRUCTURE)
]
ProbeWeights = Annotated[
    list[str],
    typer.Option(metavar="PROBE=W", help="w(p,T) of Eq. 1; else as in SCORES. Repeatable.", rich_help_panel=WEIGHING),
]
TaskWeights = Annotated[
    list[str],
    typer.Option(
        metavar="TASK=W", help="Of several SCORES: how much a task counts. Repeatable.", rich_help_panel=WEIGHING
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Score layers by another measure of SCORES, such as f1 or selectivity.", rich_help_panel=WEIGHING
    ),
]
Contribution = Annotated[
    Credit | None,
    typer.Option(
        help="Credit a layer with its score, or with what it adds to the one below.", rich_help_panel=WEIGHING
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="Count from this model's config: for CSV scores, GFLOPs, MB and ms.", rich_help_panel=COSTS),
]
Classes = Annotated[int, typer.Option(min=2, help="Number of labels of the head, with --model.", rich_help_panel=COSTS)]
Length = Annotated[int, typer.Option(min=1, help="Tokens per text, for GFLOPs and ms.", rich_help_panel=COSTS)]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts per batch, for ms.", rich_help_panel=COSTS)]


@app.command()
def select(
    scores: Scores,
    budget: Budgets = [],  # noqa: B006
    k: Annotated[int | None, typer.Option(help="Number of layers, instead of a budget; with one: at most.")] = None,
    strategy: Strategy = None,
    out: Annotated[Path | None, typer.Option(help="Also write selection.json here.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    keep: Keep = None,
    gap: Gap = 1,
    neighbours: Neighbours = False,
    weight: ProbeWeights = [],  # noqa: B006
    task_weight: TaskWeights = [],  # noqa: B006
    metric: Metric = None,
    contribution: Contribution = None,
    model: Model = None,
    classes: Classes = 2,
    length: Length = 128,
    batch_size: BatchSize = 1,
) -> None:
    """Choose the layers to keep from probe scores; needs no weights."""
    from probescale.models.subsets import parse_layers
    from probescale.report.tables import selection_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.files import CountedModel, Weighing, parse_weights, select_from_files
    from probescale.selection.structure import Structure
    from probescale.utils.outputs import check_output_file

    if out:
        check_output_file(out, inputs=[*scores, *([model] if model else [])], overwrite=overwrite)
    weighing = Weighing(
        probes=parse_weights(weight, "--weight", "PROBE"),
        tasks=parse_weights(task_weight, "--task-weight", "TASK"),
        metric=metric,
        contribution=contribution.value if contribution else None,
    )
    structure = Structure(tuple(sorted(set(parse_layers(keep)))) if keep else (), gap, neighbours, where="--")
    counted = CountedModel(model, classes, length, batch_size) if model else None
    limits = parse_budget(budget, k, where="--")
    selection = select_from_files(scores, limits, strategy, weighing=weighing, structure=structure, counted=counted)
    if out:
        selection.save(out)
    if as_json:
        show_json(selection)
    else:
        show(selection_table(selection).rich())
