"""Write what a run found: selection, metrics, predictions, figure, report, page and model card."""

from __future__ import annotations

from probescale.pipeline.evaluation import Evaluator
from probescale.probing.scores import ProbeScores
from probescale.recovery.predictions import write_predictions_csv
from probescale.recovery.regressions import find_regressions
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.report.card import model_card
from probescale.report.figure import write_figure
from probescale.report.findings import RunFindings
from probescale.report.markdown import run_report
from probescale.report.run_page import run_page
from probescale.selection.result import Selection
from probescale.utils.files import write_text


def write_outputs(
    evaluator: Evaluator,
    scores: ProbeScores,
    chosen: Selection,
    models: dict[str, EvaluatedModel],
    *,
    size_chosen_on_dev: bool = False,
) -> RunResult:
    """Write every result file into the folder that the evaluator works in.

    `models`: the original first, then the chosen subnetwork, then what it is compared with.
    """
    task, work = evaluator.task, evaluator.work
    result = _result(evaluator, chosen, models)
    predictions = {name: evaluator.predictions(name, model) for name, model in models.items()}
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
    findings = RunFindings(scores, chosen, result, evaluator.parameters, changed, bias, size_chosen_on_dev)
    write_text(work / "report.md", run_report(task, evaluator.loaded.family, findings))
    write_text(work / "report.html", run_page(findings))
    write_text(work / "model" / "README.md", model_card(evaluator.loaded, task, findings))
    return result


def _result(evaluator: Evaluator, chosen: Selection, models: dict[str, EvaluatedModel]) -> RunResult:
    task, (original, subnetwork, *_) = evaluator.task, models.values()
    return RunResult(
        task=task.name,
        metric=task.metric,
        split=task.dev_split,
        examples=len(task.dev),
        recipe=evaluator.recipe,
        strategy=chosen.strategy,
        original=original,
        subnetwork=subnetwork,
        compared=dict(list(models.items())[2:]),
        retention=subnetwork.retention,
        provenance=evaluator.bench.provenance,
    )
