"""The whole story, top-down: prepare, probe, allocate, evaluate the original, select, cut, evaluate, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from probescale.config import RunConfig
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.allocation import allocate
from probescale.pipeline.evaluation import Evaluator, evaluate_others
from probescale.pipeline.evidence import best_task_probe, probe_once
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.outputs import write_outputs
from probescale.pipeline.removals import take_out_layers
from probescale.pipeline.schedule import Schedule, make_schedule, refit, set_examples, show_schedule
from probescale.pipeline.seals import INNER, mend, sealed
from probescale.pipeline.tournament import Tournament, run_tournament
from probescale.pipeline.tournament_size import settle_tournament, without_pointless_tournament
from probescale.pipeline.workbench import Workbench, prepare
from probescale.probing.scores import ProbeScores
from probescale.recovery.recipe import Choices
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.selection.evidence import Evidence, combine_scores
from probescale.selection.result import Selection
from probescale.utils.files import write_text
from probescale.utils.progress import Phases
from probescale.utils.resources import report_shortage


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
            bench = bench.with_config(set_examples(bench.config, schedule.probed, schedule.sample))
            bench = without_pointless_tournament(bench.with_recipe(schedule.choices))
            return _run(bench, schedule, phases, work, shared)


def _run(bench: Workbench, schedule: Schedule, phases: Phases, work: Path, shared: Path | None) -> RunResult:
    """Every step of a run whose recipe is chosen."""
    with phases.phase("probing"):
        if shared:
            write_text(work / "scores.json", (shared / "scores.json").read_text(encoding="utf-8"))
        scores = probe_once(bench, work / "scores.json")
        shrinks = allocate(bench, scores, work / "allocation.json")
    evaluator = Evaluator(bench, work, shrinks[0], shared)
    with phases.phase("training the original"):
        evaluator.training.best_probe = best_task_probe(bench, scores)
        original = evaluator.evaluate_original()
    if "removals" in bench.needs:
        with phases.phase("taking out layers"):
            scores = take_out_layers(bench, evaluator.training.reload_original(), scores, work / "scores.json")
    planned = keep_choices(work / INNER / "planned_recipe.json", lambda: refit(schedule, bench, phases))
    bench = settle_tournament(without_pointless_tournament(bench.with_recipe(planned)))
    evaluator, tournament = evaluator.with_bench(bench), None
    if bench.strategy.reads == "tournament":
        with phases.phase("tournament"):
            evidence = Evidence.from_scores(scores)
            tournament = run_tournament(bench, evaluator, shrinks, evidence, work / "tournament.json")
            evaluator = evaluator.with_shrink(tournament.winner.shrink)
    recipe = keep_choices(work / "recipe.json", lambda: settle_recipe(schedule, bench, tournament, phases))
    evaluator = evaluator.with_choices(recipe)
    chosen, *others = select_all(bench, scores, evaluator.shrink, tournament)
    with phases.phase("training"):
        subnetwork = evaluator.evaluate(chosen.strategy, chosen.kept, original, hold=lambda _: True)
        evaluator.save(chosen)
    compared: dict[str, EvaluatedModel] = {}
    for other in others:
        with phases.phase("comparison"):
            compared[other.strategy] = evaluator.evaluate(other.strategy, other.kept, original)
    with phases.phase("comparison") if bench.config.other_models else nullcontext():
        other_models = evaluate_others(evaluator, original)
    with phases.phase("evaluation"):
        alternatives = evaluator.alternatives(original)
        models = {ORIGINAL: original, chosen.strategy: subnetwork, **compared}
        return write_outputs(evaluator, scores, chosen, models, other_models, alternatives)


def keep_choices(path: Path, choose: Callable[[], Choices]) -> Choices:
    """What was chosen by the clock, kept in a file: a resumed run trains with the same recipe."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        choose().save(path)
    return Choices.load(path)


def settle_recipe(schedule: Schedule, bench: Workbench, tournament: Tournament | None, phases: Phases) -> Choices:
    """The recipe of the final training: the best learning rate, and as many texts as the time that is left allows."""
    if tournament is None:
        return refit(schedule, bench, phases)
    winner = tournament.winner
    choices = refit(schedule, bench, phases, per_text=max(winner.seconds, 0.1) / winner.texts)
    rate = tournament.learning_rate
    return choices.model_copy(update={"learning_rate": rate}) if rate else choices


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
    """Write what runs share that differ only in strategy and budget: scores, the fine-tuned original, its answers, and
    the simpler models that it is compared with."""
    bench = prepare(configs[0])
    widest = max(configs, key=lambda config: bench.with_config(config).most_layers())
    strategies = dict.fromkeys(name for config in configs for name in bench.with_config(config).strategies)
    folder.mkdir(parents=True, exist_ok=True)
    mend(folder)
    with report_shortage(folder), sealed(folder):
        schedule = make_schedule(bench, folder / "schedule.json")  # as every run will
        bench = bench.with_config(set_examples(bench.config, schedule.probed, schedule.sample))
        bench = bench.with_recipe(schedule.choices)
        everything = set_examples(widest, schedule.probed, schedule.sample)
        others = bench.config.other_models
        everything = everything.model_copy(update={"compare": (*strategies, *others)})
        scores = probe_once(bench.with_config(everything), folder / "scores.json")
        evaluator = Evaluator(bench, folder, ShrinkPlan())
        evaluator.training.best_probe = best_task_probe(bench, scores)
        original = evaluator.evaluate_original()
        if "removals" in bench.with_config(everything).needs:
            take_out_layers(bench, evaluator.training.reload_original(), scores, folder / "scores.json")
        evaluate_others(evaluator, original)
        evaluator.alternatives(original)
