"""compress: a model, a table and a budget in; a small model and its report out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import AllowPickle, Overwrite, Revision, Set, finish, show

if TYPE_CHECKING:
    from probescale.config import RunConfig

_COLUMNS = "Columns (found by name and content)"
_DATA = "More data"
_HOW = "How"


@app.command()
def compress(
    model: Annotated[str, typer.Argument(help="Model folder, hub name, or pypi: source. One that was fine-tuned for "
                                              "these labels is used as it is.", show_default=False)],
    data: Annotated[str, typer.Argument(help="Labelled rows: CSV, TSV, JSONL, Parquet, CoNLL; a hub data set, or a "
                                             "pypi: source. For a generative model: text.", show_default=False)],
    budget: Annotated[list[str], typer.Option(help="5x fewer parameters (embeddings counted), 20%, 8M, 20ms, 50MB. "
                                                   "Repeatable: all apply.", show_default="5x")] = [],  # noqa: B006
    ladder: Annotated[bool, typer.Option("--ladder", help="A model of every size from one run: 2x, 3x, 5x, 10x and "
                                                          "20x, or those of --budget 2x,5x,10x.")] = False,
    keep: Annotated[str | None, typer.Option(help="Instead of a budget: the smallest model that keeps this share of "
                                                  "the metric, such as 97%.")] = None,
    time: Annotated[str | None, typer.Option(help="How long it may take, such as 30m: how much is trained and tried is "
                                                  "chosen to fit.", show_default="as long as it needs")] = None,
    dev: Annotated[str | None, typer.Option(help="Labelled rows for the final figures.",
                                            show_default="a fifth of DATA", rich_help_panel=_DATA)] = None,
    unlabelled: Annotated[str | None, typer.Option(help="Texts without labels (.txt: one per line): the more, the "
                                                        "better.", rich_help_panel=_DATA)] = None,
    calibration: Annotated[str | None, typer.Option(help="Rows or text on which drop_loss measures layers.",
                                                    show_default="a part of DATA", rich_help_panel=_DATA)] = None,
    second: Annotated[str | None, typer.Option(help="Other text: shows forgetting.", rich_help_panel=_DATA)] = None,
    bias: Annotated[str | None, typer.Option(help="Pairs that should get one answer.", rich_help_panel=_DATA)] = None,
    text: Annotated[str | None, typer.Option(help="Text column, by name or number.", rich_help_panel=_COLUMNS)] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.", rich_help_panel=_COLUMNS)] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label; or a,b,c.", rich_help_panel=_COLUMNS)] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of task, if found wrongly.", rich_help_panel=_COLUMNS)] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="The first line of CSV and TSV files is a row, not "
                                                                "the names of columns.",
                                            rich_help_panel=_COLUMNS)] = False,
    compare: Annotated[list[str], typer.Option(help="Also train the layers of this strategy, such as top_k. "
                                                    "Repeatable.", rich_help_panel=_HOW)] = [],  # noqa: B006
    teacher: Annotated[str | None, typer.Option(help="Another fine-tuned model to learn from.",
                                                rich_help_panel=_HOW)] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Train a new head even if the model was fine-tuned for "
                                                            "these labels.", rich_help_panel=_HOW)] = False,
    keep_original: Annotated[bool, typer.Option("--keep-original", help="Also keep the fine-tuned original, in "
                                                                        "the folder original of the run.",
                                                rich_help_panel=_HOW)] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.", rich_help_panel=_HOW)] = 0,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    set_: Set = [],  # noqa: B006 - typer reads it, nothing changes it
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop after the plan.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of DATA>")] = None,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Make a model small for your data: one line, no settings needed."""
    from probescale.utils.progress import spinner

    with spinner("loading libraries"):
        from probescale.pipeline.compress import NOTHING_GIVEN, Request, build_config, refuse_beside_keep, split_rungs
    refuse_beside_keep(keep, {"budget": budget, "ladder": ladder, "time": time, "compare": compare, "dry-run": dry_run})
    settings = {
        "time": time,
        "seed": seed,
        "compare": compare,
        "task.bias": bias,
        "recovery.teacher": teacher,
        "recovery.original.retrain": retrain,
        "recovery.original.keep": keep_original,
        "model.revision": revision,
        "model.allow_pickle": allow_pickle,
    }
    columns = {"text": text, "pair": pair, "label": label, "kind": kind}
    size, rungs = "100%" if keep else tuple(budget) or NOTHING_GIVEN, split_rungs(budget) if ladder else None
    request = Request(model, data, dev, unlabelled, size, columns, settings, not no_header, rungs, second, calibration)
    folder = out or Path("runs") / request.name
    config, layout = build_config(request, Path(f"{folder}.inputs"), set_)
    show(layout.describe())
    _show_plan(config) if dry_run else _carry_out(config, folder, keep, overwrite=overwrite)


def _carry_out(config: RunConfig, folder: Path, keep: str | None, *, overwrite: bool) -> None:
    """Run the configuration, or search the smallest model that keeps a share of the metric."""
    from probescale.cli.smallest import run_search
    from probescale.pipeline.run import run

    if keep:
        run_search(config, keep, folder, overwrite=overwrite)
    else:
        finish(run(config, folder, overwrite=overwrite), folder)


def _show_plan(config: RunConfig) -> None:
    from probescale.pipeline.prepare import prepare
    from probescale.pipeline.schedule import make_schedule
    from probescale.utils.yaml_files import to_yaml

    bench = prepare(config)
    bench.most_layers()  # refuses a budget that nothing meets; of a ladder, that of its largest rung
    schedule = make_schedule(bench)
    for line in schedule.lines():
        show(line)
    recovery = schedule.choices.fill_in(config.recovery)
    own = ("learning_rate", "epochs") if config.selection.ladder else ("learning_rate",)  # of every rung
    recovery = recovery.model_copy(update={name: getattr(config.recovery, name) for name in own})
    show("\nAs a configuration for `probescale run` (short trainings still choose the learning rate of cut models):\n")
    show(to_yaml(config.model_copy(update={"recovery": recovery}), only_set=True))
