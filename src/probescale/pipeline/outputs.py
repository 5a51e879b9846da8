"""Write what a run found: selection, metrics, predictions, figure, report, page and model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from probescale.config import RunConfig
from probescale.pipeline.evaluation import Evaluator
from probescale.probing.scores import ProbeScores
from probescale.recovery.ladder import LadderResult
from probescale.recovery.predictions import write_predictions_csv
from probescale.recovery.regressions import find_regressions
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.report.card import model_card
from probescale.report.figure import write_figure
from probescale.report.findings import RunFindings
from probescale.report.markdown import run_report
from probescale.report.run_page import run_page
from probescale.selection.result import Selection
from probescale.tasks.intervals import retention_interval
from probescale.utils.files import write_text
from probescale.utils.progress import spinner
from probescale.utils.yaml_files import to_yaml


def write_outputs(
    evaluator: Evaluator,
    scores: ProbeScores,
    chosen: Selection,
    models: dict[str, EvaluatedModel],
    others: Mapping[str, EvaluatedModel | str] | None = None,
    alternatives: tuple[Alternative, ...] = (),
    predictions: Mapping[str, np.ndarray] | None = None,
    search: SmallestSearch | None = None,
) -> RunResult:
    """Write every result file into the folder that the evaluator works in.

    `models`: the original first, then the chosen subnetwork, then what it is compared with. `predictions`: of each of
    them on dev, where not all come from this evaluator. `others`: other models, or why they have no row. `search`: how
    the size was found, where it was searched for.
    """
    predictions = predictions or {name: evaluator.predictions(name, model) for name, model in models.items()}
    findings = collect_findings(evaluator, scores, chosen, models, others or {}, alternatives, predictions, search)
    write_card(evaluator, findings, evaluator.work / "model")
    write_report(evaluator, findings, predictions, settled_config(evaluator))
    return findings.result


def collect_findings(
    evaluator: Evaluator,
    scores: ProbeScores,
    chosen: Selection,
    models: dict[str, EvaluatedModel],
    others: Mapping[str, EvaluatedModel | str],
    alternatives: tuple[Alternative, ...],
    predictions: Mapping[str, np.ndarray],
    search: SmallestSearch | None = None,
    ladder: LadderResult | None = None,
) -> RunFindings:
    """What a run found about one of its models; the arguments are those of `write_outputs`."""
    task = evaluator.task
    result = _result(evaluator, chosen, models, alternatives, predictions, search.keep if search else None, ladder)
    failed = {name: why for name, why in others.items() if isinstance(why, str)}
    measured = {name: other for name, other in others.items() if isinstance(other, EvaluatedModel)}
    update = {"other_models": _without_retention(measured, result), "failed_models": failed}
    return RunFindings(
        scores,
        chosen,
        result.model_copy(update=update),
        evaluator.parameters,
        find_regressions(task, predictions[ORIGINAL], predictions[chosen.strategy]),
        evaluator.bias(result.subnetwork),
        search,
        task.contradictions.sentence() if task.contradictions else "",
        ladder,
        evaluator.generation(result.subnetwork),
    )


def write_records(findings: RunFindings, folder: Path) -> None:
    """Write selection, metrics, regressions, bias and what was written as JSON."""
    findings.selection.save(folder / "selection.json")
    findings.result.save(folder / "metrics.json")
    if findings.regressions:
        findings.regressions.save(folder / "regressions.json")
    if findings.bias:
        findings.bias.save(folder / "bias.json")
    if findings.generation:
        findings.generation.save(folder / "generation.json")


def write_card(evaluator: Evaluator, findings: RunFindings, folder: Path) -> None:
    """Write the model card into the folder of the model."""
    write_text(folder / "README.md", model_card(evaluator.loaded, evaluator.task, findings))


def write_report(
    evaluator: Evaluator, findings: RunFindings, predictions: Mapping[str, np.ndarray], config: RunConfig
) -> None:
    """Write what people read into the folder that the evaluator works in, and the records that belong to it."""
    task, work = evaluator.task, evaluator.work
    others = {name: evaluator.predictions_of_other(name) for name in findings.result.other_models}
    write_text(work / "config.yaml", to_yaml(config))
    write_predictions_csv(work / "predictions.csv", task, {**predictions, **others})
    write_records(findings, work)
    write_figure(findings.scores, work / "probes", findings.selection.kept)
    write_text(work / "report.md", run_report(task, evaluator.loaded.family, findings))
    write_text(work / "report.html", run_page(findings))


def settled_config(evaluator: Evaluator) -> RunConfig:
    """The configuration with everything that was chosen as plain settings: running it repeats the run."""
    config, task = evaluator.config, evaluator.task
    recovery = evaluator.training.choices.fill_in(config.recovery)
    settled = config.task.model_copy(update={"metric": task.metric, "positive": task.positive})
    return config.model_copy(update={"task": settled, "recovery": recovery, "time": None})


def _result(
    evaluator: Evaluator,
    chosen: Selection,
    models: dict[str, EvaluatedModel],
    alternatives: tuple[Alternative, ...],
    predictions: Mapping[str, np.ndarray],
    wanted: float | None,
    ladder: LadderResult | None,
) -> RunResult:
    task, (original, subnetwork, *_) = evaluator.task, models.values()
    failure = _failure(original, subnetwork)
    if failure:  # a share of what was not learned says nothing
        original, subnetwork = (model.model_copy(update={"retention": None}) for model in (original, subnetwork))
        models = {name: model.model_copy(update={"retention": None}) for name, model in models.items()}
        alternatives = tuple(one.model_copy(update={"retention": None}) for one in alternatives)
    with spinner("resampling"):
        both = (predictions[chosen.strategy], predictions[ORIGINAL])
        together = len(ladder.rungs) if ladder else 1
        sure = retention_interval(task.measure, task.gold, *both, evaluator.config.seed, together)
    return RunResult(
        task=task.name,
        metric=task.metric,
        positive=task.positive,
        split=task.dev_split,
        examples=len(task.gold),
        recipe=evaluator.recipe,
        strategy=chosen.strategy,
        original=original,
        subnetwork=subnetwork,
        compared=dict(list(models.items())[2:]),
        alternatives=alternatives,
        failure=failure,
        retention=subnetwork.retention,
        wanted=wanted,
        retention_interval=None if subnetwork.retention is None else sure,
        provenance=evaluator.bench.provenance,
    )


def _without_retention(models: Mapping[str, EvaluatedModel], result: RunResult) -> dict[str, EvaluatedModel]:
    """The same models, without what they keep where the run has failed."""
    nothing: dict[str, None] = {"retention": None} if result.failure else {}
    return {name: model.model_copy(update=nothing) for name, model in models.items()}


def _failure(original: EvaluatedModel, subnetwork: EvaluatedModel) -> str | None:
    """Why the run is no success, for a person; None where both models learned the task."""
    for model, name, advice in (
        (original, "original", "check the labels, give more rows, or set recovery.original"),
        (subnetwork, "small model", "choose a larger budget, give more texts, or more time"),
    ):
        if model.failure:
            return f"The {name} did not learn the task: {model.failure}. Next: {advice}."
    return None
