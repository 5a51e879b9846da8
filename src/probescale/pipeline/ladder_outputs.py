"""Write what a ladder found: the records and the card of every rung, ladder.json, and the report on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from probescale.config import RunConfig
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.outputs import collect_findings, settled_config, write_card, write_records, write_report
from probescale.pipeline.rungs import BuiltRung, Run
from probescale.recovery.ladder import LadderResult, LadderRung, choose_answer, fit_ladder
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.tasks.intervals import retention_interval
from probescale.tasks.metrics import METRICS
from probescale.utils.progress import spinner


def write_ladder(
    run: Run,
    built: Sequence[BuiltRung],
    others: Mapping[str, EvaluatedModel | str],
    alternatives: tuple[Alternative, ...],
) -> RunResult:
    """Write every result file of a ladder; returns the result of the rung that is taken where none is named."""
    work, original = run.evaluator.work, run.original
    predictions = {each.name: each.evaluator.predictions(each.name, each.model) for each in built}
    predictions = {ORIGINAL: run.evaluator.predictions(ORIGINAL, original), **predictions}
    ladder = _gather(run, built, predictions)
    ladder.save(work / "ladder.json")
    answer = next((each for each in built if each.name == ladder.answer), built[0])

    def find(each: BuiltRung) -> tuple[RunFindings, dict[str, np.ndarray]]:
        names = {ORIGINAL: ORIGINAL, each.name: each.chosen.strategy}
        names |= {other.name: other.name for other in built if other is not each}
        evaluated = {ORIGINAL: original, **{one.name: one.model for one in built}}
        models = {name: evaluated[old] for old, name in names.items()}
        answers = {name: predictions[old] for old, name in names.items()}
        findings = collect_findings(
            each.evaluator, run.scores, each.chosen, models, others, alternatives, answers, ladder=ladder
        )
        return findings, answers

    for each in built:
        findings, _ = find(each)
        write_records(findings, each.rung.records)
        if each.rung.model_folder.exists():
            write_card(each.evaluator, findings, each.rung.model_folder)
    findings, answers = find(answer)
    write_report(answer.evaluator, findings, answers, settled_ladder(run.evaluator, ladder))
    return findings.result


def settled_ladder(evaluator: Evaluator, ladder: LadderResult) -> RunConfig:
    """The configuration with everything that was chosen for all rungs; `evaluator`: that of the original.

    Rungs read the same texts, but at different rates and for different numbers of epochs, which are chosen again.
    """
    config, settled = evaluator.config, settled_config(evaluator)
    open_ones = {name: getattr(config.recovery, name) for name in ("epochs", "learning_rate")}
    selection = config.selection.model_copy(update={"ladder": tuple(rung.name for rung in ladder.rungs)})
    recovery = settled.recovery.model_copy(update=open_ones)
    return settled.model_copy(update={"recovery": recovery, "selection": selection, "time": config.time})


def _gather(run: Run, built: Sequence[BuiltRung], predictions: Mapping[str, np.ndarray]) -> LadderResult:
    task, work, original = run.evaluator.task, run.evaluator.work, run.original
    rungs = []
    with spinner("resampling"):
        for each in built:
            sure = retention_interval(
                task.measure,
                task.gold,
                predictions[each.name],
                predictions[ORIGINAL],
                run.evaluator.config.seed,
                together=len(built),
            )
            failed = bool(each.model.failure or original.failure)
            rungs.append(
                LadderRung(
                    name=each.name,
                    folder="" if each.model.failure else str(each.rung.model_folder.relative_to(work)),
                    source=each.source.winner.name,
                    model=each.model.model_copy(update={"retention": None}) if failed else each.model,
                    retention_interval=None if failed else sure,
                )
            )
    lower = METRICS[task.metric].lower_is_better
    return LadderResult(
        rungs=tuple(rungs),
        original=original,
        answer=choose_answer(rungs),
        law=fit_ladder(original, rungs, lower_is_better=lower),
    )
