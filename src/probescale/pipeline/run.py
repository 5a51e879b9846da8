"""The whole story, top-down: prepare, probe, allocate, evaluate the original, select, cut, evaluate, write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from probescale.config import RunConfig
from probescale.models.fast_float32 import fast_float32
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.evaluation import Evaluator, evaluate_others
from probescale.pipeline.evidence import best_task_probe, probe_once
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.ladder_outputs import write_ladder
from probescale.pipeline.outputs import write_outputs
from probescale.pipeline.prepare import prepare
from probescale.pipeline.references import evaluate_references
from probescale.pipeline.removals import take_out_layers
from probescale.pipeline.rungs import BuiltRung, Run, build_rung, list_rungs
from probescale.pipeline.schedule import Schedule, follow_schedule, make_schedule, set_examples, show_schedule
from probescale.pipeline.seals import INNER, mend, sealed
from probescale.pipeline.tournament_size import without_pointless_tournament
from probescale.pipeline.workbench import Workbench
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.utils.files import write_text
from probescale.utils.progress import Phases
from probescale.utils.resources import report_shortage


@fast_float32()
def run(config: RunConfig, out: Path | str, *, overwrite: bool = False, shared: Path | None = None) -> RunResult:
    """Do what the configuration says, and write the folder `out` when everything is complete.

    Until then the work stands in `out.partial`; the same call resumes it after an interruption. `shared`: a folder
    written by prepare_shared(), with the scores and the fine-tuned original that several runs have in common.
    """
    started, out = time.monotonic(), check_run_folder(out, config.list_sources(), overwrite=overwrite)
    bench = prepare(config)
    with work_folder(out, config, bench.provenance, overwrite=overwrite) as work, report_shortage(work):
        bench = bench.with_costs(work / "costs.json")
        bench.check_budget()  # before any work
        schedule = make_schedule(bench, work / "schedule.json", shared and shared / "schedule.json")
        show_schedule(schedule)
        phases = Phases(schedule.seconds, work / INNER / "clock.json", started)
        with phases.shown():
            bench = without_pointless_tournament(follow_schedule(bench, schedule))
            return _run(bench, schedule, phases, work, shared)


def _run(bench: Workbench, schedule: Schedule, phases: Phases, work: Path, shared: Path | None) -> RunResult:
    """Every step of a run whose recipe is chosen."""
    with phases.phase("probing"):
        if shared:
            write_text(work / "scores.json", (shared / "scores.json").read_text(encoding="utf-8"))
        scores = probe_once(bench, work / "scores.json")
        rungs = list_rungs(bench, scores, work)
    evaluator = Evaluator(bench, work, ShrinkPlan(), shared)
    with phases.phase("training the original"):
        evaluator.training.best_probe = best_task_probe(bench, scores)
        original = evaluator.evaluate_original()
    if "removals" in bench.needs:
        with phases.phase("taking out layers"):
            scores = take_out_layers(bench, evaluator.training.reload_original(), scores, work / "scores.json")
    run = Run(scores, schedule, phases, evaluator, original)
    built: list[BuiltRung] = []
    for rung in rungs:
        alive = [each for each in built if not each.model.failure]
        built.append(build_rung(rung, run, alive[-1] if alive else None))
    compared: dict[str, EvaluatedModel] = {}
    for other in built[0].others:
        with phases.phase("comparison"):
            compared[other.strategy] = built[0].evaluator.evaluate(other.strategy, other.kept, original)
    with phases.phase("comparison") if bench.config.other_models or bench.config.references else nullcontext():
        other_models = evaluate_others(built[0].evaluator, original)
        other_models |= evaluate_references(built[0].evaluator, built[0].chosen.kept, original)
    with phases.phase("evaluation"):
        alternatives = built[0].evaluator.alternatives(original)
        if bench.config.selection.ladder:
            return write_ladder(run, built, other_models, alternatives)
        (only,) = built
        models = {ORIGINAL: original, only.chosen.strategy: only.model, **compared}
        return write_outputs(only.evaluator, scores, only.chosen, models, other_models, alternatives)


@fast_float32()
def prepare_shared(configs: Sequence[RunConfig], folder: Path) -> None:
    """Write what runs share that differ only in strategy and budget: scores, the fine-tuned original, its answers, and
    the simpler models that it is compared with."""
    bench = prepare(configs[0])
    widest = max(configs, key=lambda config: bench.with_config(config).most_layers())
    strategies = dict.fromkeys(name for config in configs for name in bench.with_config(config).strategies)
    folder.mkdir(parents=True, exist_ok=True)
    mend(folder)
    with report_shortage(folder), sealed(folder):
        schedule = make_schedule(bench, folder / "schedule.json")  # as every run will
        bench = follow_schedule(bench, schedule)
        everything = set_examples(widest, schedule.probed, schedule.sample)
        others = bench.config.other_models
        # Length and number of texts are those of the schedule, as in the runs themselves.
        settled = {"compare": (*strategies, *others), "model": bench.config.model, "task": bench.config.task}
        everything = everything.model_copy(update=settled)
        scores = probe_once(bench.with_config(everything), folder / "scores.json")
        evaluator = Evaluator(bench, folder, ShrinkPlan())
        evaluator.training.best_probe = best_task_probe(bench, scores)
        original = evaluator.evaluate_original()
        if "removals" in bench.with_config(everything).needs:
            take_out_layers(bench, evaluator.training.reload_original(), scores, folder / "scores.json")
        evaluate_others(evaluator, original)
        evaluator.alternatives(original)
