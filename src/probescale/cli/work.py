"""run, validate, probe, select: the steps of the method."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import BatchSize, Budgets, Config, Json, Length, Overwrite, Set, show
from probescale.defaults import STRATEGY
from probescale.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from probescale.models.cost import Cost
    from probescale.models.parameters import Parameters
    from probescale.selection.budget import Budget, Unit


@app.command()
def run(
    config: Config,
    set_: Set = [],  # noqa: B006 - typer reads it, nothing changes it
    out: Annotated[Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of CONFIG>")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Probe, select, cut, fine-tune and measure, as the configuration says."""
    from probescale.pipeline.validate import load_config
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / config.stem
    settings = load_config(config, set_)
    with spinner("loading libraries"):
        from probescale.pipeline.run import run as run_pipeline
        from probescale.probing.score_files import load_scores
        from probescale.report.tables import comparison_table, layer_table
    result = run_pipeline(settings, folder, overwrite=overwrite)
    scores = load_scores(folder / "scores.json")
    show(layer_table(scores, result.subnetwork.kept).rich())
    show("")
    show(comparison_table(result).rich())
    show(f"\nmodel, scores and report: {folder}")


@app.command()
def smallest(
    config: Config,
    keep: Annotated[str, typer.Option(help="Share of the original's metric to keep, such as 97%.")],
    set_: Set = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of CONFIG>-smallest")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Find the smallest subnetwork that keeps a share of the original's metric: train few, measure all, stop."""
    from probescale.pipeline.validate import load_config
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / f"{config.stem}-smallest"
    settings = load_config(config, [*set_, "selection.k=null", "selection.budget=100%"])  # theirs count nothing here
    with spinner("loading libraries"):
        from probescale.pipeline.smallest import parse_share
        from probescale.pipeline.smallest import smallest as find
        from probescale.report.tables import search_notes, search_table
    trace = find(settings, parse_share(keep), folder, overwrite=overwrite)
    show(search_table(trace).rich())
    for note in search_notes(trace):
        show(note)
    show(f"\nmodel, scores and report: {folder}")


@app.command()
def validate(config: Config, set_: Set = []) -> None:  # noqa: B006
    """Check the configuration of a run or a study and list every problem at once; nothing is computed or fetched."""
    from probescale.pipeline.validate import load_config
    from probescale.study.cells import load_study
    from probescale.utils.yaml_files import read_yaml

    if "study" in read_yaml(config):
        show(f"{config}: no problems found in {len(load_study(config, set_).cells)} cells")
        return
    load_config(config, set_)
    show(f"{config}: no problems found")


@app.command()
def probe(
    config: Config,
    set_: Set = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Scores file to write.")] = Path("scores.json"),
) -> None:
    """Score every layer for the task; writes scores.json and the figure beside it (SVG, PNG)."""
    from probescale.pipeline.validate import load_config
    from probescale.utils.files import check_output_file
    from probescale.utils.progress import spinner

    settings = load_config(config, set_)
    check_output_file(out)
    if out.suffix in (".svg", ".png"):
        raise UserError(
            f'"{out}" is where the figure goes', field="--out", hint="give the scores a name like scores.json"
        )
    with spinner("loading libraries"):
        from probescale.pipeline.allocation import options
        from probescale.pipeline.allocation import smallest as smallest_of
        from probescale.pipeline.evidence import gather
        from probescale.pipeline.provenance import provenance
        from probescale.pipeline.run import prepare, shrinker_of
        from probescale.probing.probe import probe as probe_layers
        from probescale.report.figure import FORMATS, write_figure
        from probescale.report.probes import parts_table, probe_notes, probe_table
        from probescale.report.tables import layer_table
    for kind in FORMATS:
        check_output_file(out.with_suffix(f".{kind}"))
    task, loaded = prepare(settings)
    scores = probe_layers(loaded, task, settings, provenance(loaded, task, settings.seed))
    shrinker = shrinker_of(loaded, task, settings)
    scores = gather(scores, loaded, task, settings, smallest_of(shrinker, options(shrinker, settings.shrink)))
    scores.save(out)
    figures = write_figure(scores, out.with_suffix(""))
    for name, found in scores.probes.items():
        for table in (probe_table(name, found), parts_table(name, found)):
            if table:
                show(table.rich())
                show("")
    if len(scores.probes) > 1 or scores.contribution == "marginal":
        show(layer_table(scores).rich())
        show("")
    for note in probe_notes(scores):
        show(note)
    show(f"\nscores: {out}, figure: {figures[0]}, {figures[1]}")


class Credit(str, Enum):
    absolute = "absolute"
    marginal = "marginal"


@app.command()
def select(
    scores: Annotated[
        list[Path],
        typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score; several: one task each."),
    ],
    budget: Budgets = [],  # noqa: B006
    k: Annotated[int | None, typer.Option(help="Number of layers, instead of a budget; with one: at most.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="See `probescale list strategies`.",
            show_default=f"{STRATEGY}, or contiguous without probed subnetworks or with --weight, --metric, ...",
        ),
    ] = None,
    keep: Annotated[str | None, typer.Option(help="Layers that are always kept, such as 1 or 1,12.")] = None,
    gap: Annotated[int, typer.Option(min=1, help="Smallest distance between two kept layers; 1: any.")] = 1,
    neighbours: Annotated[bool, typer.Option("--neighbours", help="Keep neighbouring layers only.")] = False,
    task_weight: Annotated[
        list[str], typer.Option(metavar="TASK=W", help="Of several SCORES: how much a task counts. Repeatable.")
    ] = [],  # noqa: B006
    weight: Annotated[
        list[str], typer.Option(metavar="PROBE=W", help="w(p,T) of Eq. 1; else as in SCORES. Repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[
        str | None, typer.Option(help="Count from this model's config: for CSV scores, GFLOPs, MB and ms.")
    ] = None,
    classes: Annotated[int, typer.Option(min=2, help="Number of labels of the head, with --model.")] = 2,
    length: Length = 128,
    batch_size: BatchSize = 1,
    out: Annotated[Path | None, typer.Option(help="Also write selection.json here.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Score layers by another measure of SCORES, such as f1 or selectivity.")
    ] = None,
    contribution: Annotated[
        Credit | None, typer.Option(help="Credit a layer with its score, or with what it adds to the one below.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose the layers to keep from probe scores; needs no weights."""
    from probescale.models.subsets import parse_layers
    from probescale.probing.score_files import load_scores
    from probescale.report.tables import selection_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.constraints import Constraints
    from probescale.selection.evidence import combine_scores
    from probescale.selection.select import select as select_layers
    from probescale.selection.structure import Structure
    from probescale.utils.files import check_output_file

    if weight or metric or contribution:
        strategy = _by_layers(strategy)
    tasks = [load_scores(path) for path in scores]
    tasks = [one.with_weights(_weights(weight)) if weight else one for one in tasks]
    tasks = [one.with_metric(metric, contribution.value if contribution else None) for one in tasks]
    shares = _task_weights(task_weight, [one.task for one in tasks])
    evidence, resamples = combine_scores(tasks, shares)
    structure = Structure(tuple(sorted(set(parse_layers(keep)))) if keep else (), gap, neighbours, where="--")
    limits = parse_budget(budget, k, where="--")
    parameters, costs = tasks[0].parameters, {}
    if model:
        parameters, costs = _counted(model, evidence.layers, limits, classes, length, batch_size)
    made = tasks[0].provenance if len(tasks) == 1 else {"tasks": {one.task: one.provenance for one in tasks}}
    chosen = select_layers(
        evidence,
        Constraints(limits, parameters, costs, structure),
        strategy,
        resamples=resamples,
        provenance=made,
    )
    if out:
        chosen.save(check_output_file(out))
    if as_json:
        typer.echo(chosen.model_dump_json(indent=2))
    else:
        show(selection_table(chosen).rich())


def _weights(words: list[str], field: str = "--weight", what: str = "PROBE") -> dict[str, float]:
    weights = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            weights[name] = float(value)
        except ValueError as error:
            raise UserError(f'"{word}" is not {what}=NUMBER', field=field) from error
        if not 0 <= weights[name] < float("inf"):
            raise UserError(f"the weight of {name} is {value}", field=field, hint="weights are 0 or more")
    return weights


def _by_layers(strategy: str | None) -> str:
    """Probe weights, measures and credit are about the layers' scores, by which stitched strategies do not go."""
    from probescale.selection.strategies import STRATEGIES

    if strategy in STRATEGIES and STRATEGIES[strategy].reads in ("blocks", "search", "all subsets"):
        raise UserError(
            f"{strategy} goes by probes of subnetworks, which --weight, --metric and --contribution do not change",
            field="--strategy",
            hint="leave them out, or use contiguous, best_scores or marginal",
        )
    return strategy or "contiguous"


def _task_weights(words: list[str], tasks: list[str]) -> list[float]:
    """1 for every task that is not named."""
    weights = _weights(words, "--task-weight", "TASK")
    if unknown := [name for name in weights if name not in tasks]:
        raise UserError(
            f'no SCORES are of the task "{unknown[0]}".{did_you_mean(unknown[0], tasks)}',
            field="--task-weight",
            hint=f"use one of: {', '.join(tasks)}",
        )
    return [weights.get(task, 1.0) for task in tasks]


@app.command()
def calibrate(
    scores: Annotated[Path, typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score.")],
    measured: Annotated[
        list[Path], typer.Argument(help="Run folders or metrics.json; or CSV files with the columns layers, value.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write the scores with these weights here.")] = None,
    as_json: Json = False,
) -> None:
    """Learn the probes' weights w(p,T) from subnetworks that were measured; tells how well they predict others."""
    from probescale.probing.score_files import load_scores
    from probescale.report.tables import calibration_table
    from probescale.selection.calibration import calibrate as learn
    from probescale.selection.calibration import load_measured
    from probescale.utils.files import check_output_file

    found = load_scores(scores)
    learnt = learn({name: probe.scores for name, probe in found.probes.items()}, load_measured(measured))
    if out:
        found.with_weights(learnt.weights).save(check_output_file(out))
    if as_json:
        typer.echo(learnt.model_dump_json(indent=2))
    else:
        show(calibration_table(learnt).rich())


def _counted(
    model: str, layers: int, limits: Budget, classes: int, length: int, batch_size: int
) -> tuple[Parameters, dict[Unit, Cost]]:
    """What the model's layers cost, from its config."""
    from probescale.models.architecture import read_architecture
    from probescale.models.budget_costs import Workload, measure_costs
    from probescale.models.counting import count_from_config

    what = read_architecture(model, field="--model")
    if what.layers != layers:
        raise UserError(f"{model} has {what.layers} layers, the scores {layers}", field="--model")
    parameters = count_from_config(what.config, what.family, classes, field="--model")
    workload = Workload(what.config, what.family, classes=classes, length=length, batch_size=batch_size)
    return parameters, measure_costs(limits.units, workload, parameters)
