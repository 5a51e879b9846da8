"""Write what a run found: selection, metrics, predictions, figure, report, page and model card."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from probescale.config import RunConfig
from probescale.pipeline.evaluation import Evaluator
from probescale.probing.scores import ProbeScores
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
    task, work = evaluator.task, evaluator.work
    predictions = predictions or {name: evaluator.predictions(name, model) for name, model in models.items()}
    other_models = {name: other for name, other in (others or {}).items() if isinstance(other, EvaluatedModel)}
    predictions = {**predictions, **{name: evaluator.predictions_of_other(name) for name in other_models}}
    result = _result(evaluator, chosen, models, alternatives, predictions, search.keep if search else None)
    failed = {name: why for name, why in (others or {}).items() if isinstance(why, str)}
    other_models = _without_retention(other_models, result)
    result = result.model_copy(update={"other_models": other_models, "failed_models": failed})
    write_text(work / "config.yaml", to_yaml(settled_config(evaluator)))
    write_predictions_csv(work / "predictions.csv", task, predictions)
    changed = find_regressions(task, predictions[ORIGINAL], predictions[chosen.strategy])
    if changed:
        changed.save(work / "regressions.json")
    bias = evaluator.bias(result.subnetwork)
    if bias:
        bias.save(work / "bias.json")
    chosen.save(work / "selection.json")
    result.save(work / "metrics.json")
    write_figure(scores, work / "probes", chosen.kept)
    contradictions = task.contradictions.sentence() if task.contradictions else ""
    findings = RunFindings(scores, chosen, result, evaluator.parameters, changed, bias, search, contradictions)
    write_text(work / "report.md", run_report(task, evaluator.loaded.family, findings))
    write_text(work / "report.html", run_page(findings))
    write_text(work / "model" / "README.md", model_card(evaluator.loaded, task, findings))
    return result


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
) -> RunResult:
    task, (original, subnetwork, *_) = evaluator.task, models.values()
    failure = _failure(original, subnetwork)
    if failure:  # a share of what was not learned says nothing
        original, subnetwork = (model.model_copy(update={"retention": None}) for model in (original, subnetwork))
        models = {name: model.model_copy(update={"retention": None}) for name, model in models.items()}
        alternatives = tuple(one.model_copy(update={"retention": None}) for one in alternatives)
    with spinner("resampling"):
        both = (predictions[chosen.strategy], predictions[ORIGINAL])
        sure = retention_interval(task.measure, task.gold, *both, evaluator.config.seed)
    return RunResult(
        task=task.name,
        metric=task.metric,
        positive=task.positive,
        split=task.dev_split,
        examples=len(task.dev),
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
