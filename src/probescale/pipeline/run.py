"""The whole story, top-down: prepare, probe, allocate, evaluate the original, select, cut, evaluate, write."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from probescale.config import RunConfig
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.allocation import allocate
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.evidence import probe_once
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.outputs import write_outputs
from probescale.pipeline.tournament import Tournament, run_tournament
from probescale.pipeline.workbench import Workbench, prepare
from probescale.probing.scores import ProbeScores
from probescale.recovery.result import ORIGINAL, RunResult
from probescale.selection.evidence import Evidence, combine_scores
from probescale.selection.result import Selection
from probescale.utils.resources import report_shortage


def run(config: RunConfig, out: Path | str, *, overwrite: bool = False, shared: Path | None = None) -> RunResult:
    """Do what the configuration says, and write the folder `out` when everything is complete.

    Until then the work stands in `out.partial`; the same call resumes it after an interruption. `shared`: a folder
    written by prepare_shared(), with the scores and the fine-tuned original that several runs have in common.
    """
    out = check_run_folder(out, overwrite=overwrite)
    bench = prepare(config)
    with work_folder(out, config, bench.provenance) as work, report_shortage(work):
        bench = bench.with_costs(work / "costs.json")
        bench.check_budget()  # before any work
        if shared:
            shutil.copyfile(shared / "scores.json", work / "scores.json")
        scores = probe_once(bench, work / "scores.json")
        shrinks = allocate(bench, scores, work / "allocation.json")

        evaluator = Evaluator(bench, work, shrinks[0], shared)
        original = evaluator.evaluate_original()
        tournament = None
        if bench.strategy.reads == "tournament":
            tournament = run_tournament(
                bench, evaluator, shrinks, Evidence.from_scores(scores), work / "tournament.json"
            )
            evaluator = evaluator.with_shrink(tournament.winner.shrink)
        chosen, *others = select_all(bench, scores, evaluator.shrink, tournament)
        subnetwork = evaluator.evaluate(chosen.strategy, chosen.kept, original, hold=lambda _: True)
        evaluator.save(chosen)
        compared = {other.strategy: evaluator.evaluate(other.strategy, other.kept, original) for other in others}

        return write_outputs(evaluator, scores, chosen, {ORIGINAL: original, chosen.strategy: subnetwork, **compared})


def select_all(
    bench: Workbench, scores: ProbeScores, shrink: ShrinkPlan, tournament: Tournament | None = None
) -> list[Selection]:
    """The choice of the run's own strategy, then those of the strategies that it is compared with."""
    evidence, resamples = combine_scores([scores], [1.0])
    if tournament:
        evidence = replace(evidence, tournament=tournament.ranking)
    chosen, *others = (bench.select(name, evidence, shrink, resamples) for name in bench.strategies)
    return [chosen.model_copy(update={"reason": tournament.summary()}) if tournament else chosen, *others]


def prepare_shared(configs: Sequence[RunConfig], folder: Path) -> None:
    """Write what runs share that differ only in strategy and budget: scores, the fine-tuned original, its answers."""
    bench = prepare(configs[0])
    widest = max(configs, key=lambda config: bench.with_config(config).most_layers())
    strategies = dict.fromkeys(name for config in configs for name in bench.with_config(config).strategies)
    folder.mkdir(parents=True, exist_ok=True)
    with report_shortage(folder):
        everything = widest.model_copy(update={"compare": tuple(strategies)})
        probe_once(bench.with_config(everything), folder / "scores.json")
        Evaluator(bench, folder, ShrinkPlan()).evaluate_original()
