"""One size of a run, from its share of the budget to its saved model: compare, select, cut, train, evaluate, save.

A run without a ladder has one rung. The rungs of a ladder are built from the largest to the smallest. Each learns from
the one above: its learning rate, its best rules, where to look for a better allocation, and its weights, if a cut from
them learns more than one from the original.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset
from probescale.pipeline.allocation import allocate
from probescale.pipeline.estimates import name_phase
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.schedule import Schedule, choose_rung_recipe
from probescale.pipeline.seals import INNER
from probescale.pipeline.sources import SavedRung, SourceChoice, choose_source, count_source_texts
from probescale.pipeline.time_left import fit_to_time_left
from probescale.pipeline.tournament import Lessons, Tournament, run_tournament
from probescale.pipeline.tournament_size import count_planned, settle_tournament, without_pointless_tournament
from probescale.pipeline.workbench import Workbench
from probescale.probing.scores import ProbeScores
from probescale.recovery.recipe import Choices
from probescale.recovery.result import EvaluatedModel
from probescale.selection.evidence import Evidence, combine_scores
from probescale.selection.ladder import rung_folder
from probescale.selection.result import Selection, describe
from probescale.utils.progress import Phases

MODEL, MODELS, RUNGS = "model", "models", "rungs"  # folders of a run


@dataclass(frozen=True)
class Rung:
    """A size to build, and where its files stand."""

    bench: Workbench
    shrinks: Sequence[ShrinkPlan]  # the best way for every number of layers, the best of all first
    records: Path  # the folder of allocation.json, tournament.json, recipe.json, source.json
    work: Path  # the folder of what only a resumed run needs
    model_folder: Path  # of the finished model

    @property
    def name(self) -> str:
        return self.bench.rung


@dataclass(frozen=True)
class Run:
    """What all rungs share."""

    scores: ProbeScores
    schedule: Schedule
    phases: Phases
    evaluator: Evaluator  # of the original
    original: EvaluatedModel


@dataclass(frozen=True)
class BuiltRung:
    """A rung that was trained and evaluated; saved where it learned the task."""

    rung: Rung
    evaluator: Evaluator
    chosen: Selection
    others: Sequence[Selection]  # of the strategies that it is compared with
    model: EvaluatedModel
    source: SourceChoice
    lessons: Lessons

    @property
    def name(self) -> str:
        return self.rung.name

    @property
    def saved(self) -> SavedRung:
        return SavedRung(self.name, self.rung.model_folder, self.chosen.kept, self.evaluator.shrink)


def list_rungs(bench: Workbench, scores: ProbeScores, work: Path) -> list[Rung]:
    """Every size of the run, the largest first, each with its share of the budget for layers and other parts."""
    rungs: list[Rung] = []
    for name, own in bench.rungs.items():
        folder = rung_folder(name)
        records, inner = (work / RUNGS / folder, work / INNER / RUNGS / folder) if name else (work, work)
        records.mkdir(parents=True, exist_ok=True)
        larger = rungs[-1].records / "allocation.json" if rungs else None
        shrinks = allocate(own, scores, records / "allocation.json", larger)
        rungs.append(Rung(own, shrinks, records, inner, work / MODELS / folder if name else work / MODEL))
    return rungs


def build_rung(rung: Rung, run: Run, above: BuiltRung | None) -> BuiltRung:
    """Choose the layers and the recipe of one size, train it, evaluate it and save it.

    `above`: the rung above that learned the task, if there is one.
    """
    lessons = above.lessons if above else Lessons()
    bench, tournament = _plan(rung, run, lessons), None
    evaluator = run.evaluator.for_rung(bench, rung.work, rung.shrinks[0])
    if bench.strategy.reads == "tournament":
        with run.phases.phase(name_phase(rung.name, "tournament")):
            evidence, path = Evidence.from_scores(run.scores), rung.records / "tournament.json"
            tournament = run_tournament(bench, evaluator, rung.shrinks, evidence, path, lessons)
            evaluator = evaluator.with_shrink(tournament.winner.shrink)
    recipe = keep_choices(
        rung.records / "recipe.json", lambda: settle_recipe(run.schedule, bench, tournament, run.phases)
    )
    evaluator = evaluator.with_choices(recipe)
    chosen, *others = select_all(bench, run.scores, evaluator.shrink, tournament)
    with run.phases.phase(name_phase(rung.name, "training")):
        source, start = choose_source(
            bench,
            evaluator,
            chosen.kept,
            above.saved if above else None,
            count_source_texts(count_planned(bench.with_recipe(recipe))),
            rung.records / "source.json",
        )
        chosen = fit_to_source(chosen, source, bench, run.scores, evaluator.shrink)
        evaluator = evaluator.with_start(start)
        # A dead rung is not saved. Without a ladder the model of a failed run is, for those who want to look at it.
        worth_saving: Callable[[EvaluatedModel], bool] = lambda model: not (rung.name and model.failure)  # noqa: E731
        model = evaluator.evaluate(rung.name or chosen.strategy, chosen.kept, run.original, hold=worth_saving)
        if worth_saving(model):
            evaluator.save(chosen, rung.model_folder)
    return BuiltRung(
        rung, evaluator, chosen, others, model, source, tournament.teach(lessons) if tournament else lessons
    )


def _plan(rung: Rung, run: Run, lessons: Lessons) -> Workbench:
    """The bench of a rung with its recipe and the size of its tournament."""
    bench = rung.bench
    if rung.name:
        choices = choose_rung_recipe(bench, run.schedule)
        if bench.config.recovery.learning_rate == "auto":
            choices = choices.model_copy(update={"learning_rate": float(f"{lessons.rate * choices.learning_rate:.1e}")})
        bench = bench.with_recipe(choices)
    path = rung.work / INNER / "planned_recipe.json"
    planned = keep_choices(path, lambda: fit_to_time_left(run.schedule, bench, run.phases))
    return settle_tournament(without_pointless_tournament(bench.with_recipe(planned)))


def keep_choices(path: Path, choose: Callable[[], Choices]) -> Choices:
    """What was chosen by the clock, kept in a file: a resumed run trains with the same recipe."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        choose().save(path)
    return Choices.load(path)


def settle_recipe(schedule: Schedule, bench: Workbench, tournament: Tournament | None, phases: Phases) -> Choices:
    """The recipe of the final training: the best learning rate, and as many texts as the time that is left allows."""
    if tournament is None:
        return fit_to_time_left(schedule, bench, phases)
    winner = tournament.winner
    choices = fit_to_time_left(schedule, bench, phases, per_text=max(winner.seconds, 0.1) / winner.texts)
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


def fit_to_source(
    chosen: Selection, source: SourceChoice, bench: Workbench, scores: ProbeScores, shrink: ShrinkPlan
) -> Selection:
    """The selection as this source can give it: with its nearest layers, and with the reason why it was taken."""
    reason = " ".join(filter(None, (chosen.reason, source.describe())))
    kept: Subset = source.winner.kept
    if kept != chosen.kept:
        constraints = bench.constraints(shrink)
        chosen = describe(kept, scores.relevance, constraints, chosen.strategy, chosen.provenance)
    return chosen.model_copy(update={"reason": reason})
