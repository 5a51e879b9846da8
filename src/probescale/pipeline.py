"""The whole story, top-down: probe, select, cut, fine-tune, measure, write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probescale.checks import check_budget
from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.files import write_json, write_text
from probescale.gathering import gather, most_layers, strategies_of
from probescale.measuring import Measurer
from probescale.models.cost import Cost
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.units import costs_of
from probescale.probing.probe import check_probes, probe
from probescale.probing.scores import ProbeScores, load_scores
from probescale.provenance import provenance
from probescale.recovery.result import Measured, RunResult
from probescale.report.figure import write_figure
from probescale.report.markdown import report
from probescale.runfolder import check_run_folder, work_folder
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.evidence import together
from probescale.selection.select import Selection, select
from probescale.selection.structure import structure_of
from probescale.tasks.task import Task, load_task


def run(config: RunConfig, out: Path | str, *, overwrite: bool = False) -> RunResult:
    """Everything a configuration asks for, written to the folder `out` when it is complete.

    Until then the work stands in `out.partial`; the same call goes on from there after an interruption.
    """
    out = check_run_folder(out, overwrite=overwrite)
    task, loaded = prepare(config)
    made = provenance(loaded, task, config.seed)
    with work_folder(out, config, made) as work:
        costs = _costs(work / "costs.json", loaded, config)
        most_layers(loaded, config, costs)  # a budget that nothing meets shows before the work
        scores = scores_of(work, loaded, task, config, made)
        chosen, *others = _selections(scores, loaded, config, costs, made)

        assert scores.parameters is not None
        measurer = Measurer(work, loaded, task, config, scores.parameters)
        original = measurer.measure("original", tuple(range(1, scores.layers + 1)))
        subnetwork = measurer.measure(chosen.strategy, chosen.kept, original, hold=lambda _: True)
        measurer.save(chosen)
        compared = {other.strategy: measurer.measure(other.strategy, other.kept, original) for other in others}

        return write_result(measurer, scores, chosen, original, subnetwork, compared, made)


def write_result(
    measurer: Measurer,
    scores: ProbeScores,
    chosen: Selection,
    original: Measured,
    subnetwork: Measured,
    compared: dict[str, Measured],
    made: dict[str, Any],
) -> RunResult:
    """selection.json, metrics.json, the figure and the report, into the folder that the measurer works in."""
    task, work = measurer.task, measurer.work
    result = RunResult(
        task=task.name,
        metric=task.metric,
        split=task.dev_split,
        examples=len(task.dev),
        recipe=measurer.recipe,
        strategy=chosen.strategy,
        original=original,
        subnetwork=subnetwork,
        compared=compared,
        retention=subnetwork.retention,
        provenance=made,
    )
    chosen.save(work / "selection.json")
    result.save(work / "metrics.json")
    write_figure(scores, work / "probes")
    write_text(work / "report.md", report(task, measurer.loaded.family, scores, chosen, result))
    return result


def prepare(config: RunConfig) -> tuple[Task, LoadedModel]:
    """Data and model, with everything that can be refused refused now: bad data, an impossible budget."""
    task = load_task(config.task, config.seed)
    check_probes(task, config)
    check_budget(config, len(task.train.names))
    source = config.model
    loaded = load_classifier(
        source.source, source.revision, task.train.names, config.seed, allow_pickle=source.allow_pickle
    )
    for number, prop in enumerate(config.task.probes):
        if prop.pooling == "cls" and loaded.tokenizer.cls_token_id is None:
            raise UserError(
                "this model's inputs do not begin with a token for the whole text",
                field=f"task.probes.{number}.pooling",
                hint="use mean, or auto",
            )
    return task, loaded


def scores_of(work: Path, loaded: LoadedModel, task: Task, config: RunConfig, made: dict[str, Any]) -> ProbeScores:
    path = work / "scores.json"
    if not path.exists():
        probe(loaded, task, config, made).save(path)
    gather(load_scores(path), loaded, task, config).save(path)
    return load_scores(path)


def _selections(
    scores: ProbeScores, loaded: LoadedModel, config: RunConfig, costs: dict[Unit, Cost], made: dict[str, Any]
) -> list[Selection]:
    budget = parse_budget(config.selection.budget, config.selection.k)
    parameters = count_parameters(loaded.model, loaded.family)
    (evidence, resamples), structure = together([scores], [1.0]), structure_of(config.selection)
    return [
        select(evidence, budget, parameters, name, made, costs, structure, resamples) for name in strategies_of(config)
    ]


def _costs(path: Path, loaded: LoadedModel, config: RunConfig) -> dict[Unit, Cost]:
    """What layers cost in the budget's units. Kept: a time measured twice would not be the same."""
    asked = config.selection
    units = parse_budget(asked.budget, asked.k).units
    if units <= {"parameters"}:
        return {}
    if not path.exists():
        costs = costs_of(
            units,
            loaded.model.config,
            loaded.family,
            count_parameters(loaded.model, loaded.family),
            classes=len(loaded.model.config.id2label or ()),
            length=asked.length,
            batch_size=asked.batch_size,
            model=loaded.model,
        )
        write_json(path, {unit: cost.model_dump() for unit, cost in costs.items()})
    return {unit: Cost(**cost) for unit, cost in json.loads(path.read_text(encoding="utf-8")).items()}
