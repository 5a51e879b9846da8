"""The recipe of a training that is about to begin, by the time that is left."""

from __future__ import annotations

from probescale.config import RecoveryConfig
from probescale.pipeline.estimates import name_phase
from probescale.pipeline.schedule import EFFORTS, Schedule
from probescale.pipeline.tournament_size import BELOW, FULL
from probescale.pipeline.workbench import Workbench, choose_for_others
from probescale.recovery.automatic import Situation, choose_recipe, count_available, count_read
from probescale.recovery.recipe import Choices
from probescale.utils.progress import Phases

MOST_SLOWER = 3.0  # times; a pace that is further off, either way, is not believed


def fit_to_time_left(schedule: Schedule, bench: Workbench, phases: Phases, per_text: float | None = None) -> Choices:
    """The recipe with as many texts as the time that is left allows; where no time was given, as it was planned.

    `per_text`: seconds of a training step per text; by default as measured before the work, corrected by how much
    longer or shorter than planned everything has taken so far.
    """
    settings, choices = bench.config.recovery, bench.chosen_recipe
    if schedule.limit is None or not settings.epochs == settings.texts == "auto":
        return choices
    slower = min(max(phases.slower, 1 / MOST_SLOWER), MOST_SLOWER)
    per_text = per_text or slower * schedule.pace.for_rung(bench.rung)
    left = schedule.limit - phases.elapsed - slower * schedule.seconds["evaluation"]
    if others := len(bench.config.other_models):  # each about as long as the original, trained like it
        epochs = choose_for_others(bench, choices).original_epochs - choices.original_epochs
        more = slower * epochs * bench.situation.labelled * schedule.pace.train
        as_original = phases.took.get("training the original", slower * schedule.seconds["training the original"])
        left -= others * (as_original + more)
    if bench.rung:  # a share for this rung, the rest for those below it
        left *= _share_of_rung(schedule, bench.rung, phases)
    references = bench.config.references
    trainings = float(len(bench.strategies) + len(references))
    if "full_model" in references:  # with all its layers, a step takes longer
        trainings += schedule.pace.train / schedule.pace.train_cut - 1
    if bench.strategy.reads == "tournament" and name_phase(bench.rung, "tournament") not in phases.took:
        size = BELOW if bench.follows else FULL
        if trial := bench.config.selection.trial:
            left -= trial * size.units * per_text
        else:
            trainings += size.cost
    return fit_into(choices, settings, bench.situation, max(left, 1.0) / trainings, per_text)


def _share_of_rung(schedule: Schedule, rung: str, phases: Phases) -> float:
    """The planned share of a rung in the time of all that are not trained yet."""
    planned: dict[str, float] = {}
    for name in schedule.pace.train_rungs:
        steps = (name_phase(name, what) for what in ("tournament", "training"))
        planned[name] = sum(schedule.seconds.get(step, 0.0) for step in steps if step not in phases.took)
    own = planned[rung]
    return own / sum(planned.values()) if own else 1.0


def fit_into(
    choices: Choices, settings: RecoveryConfig, situation: Situation, seconds: float, per_text: float
) -> Choices:
    """The recipe with as many texts as can be read in this time, when it is known how fast that goes.

    At most EFFORTS[1] times the usual amount is read, even where there is time for more.
    """
    every = count_available(settings, situation, choices.augment)
    available = min(every, choices.texts or every)  # those that the teacher has answered
    most = count_read(settings, situation, choose_recipe(settings, situation, EFFORTS[1]))
    read = max(min(round(seconds / per_text), most), 1)
    epochs = max(min(round(read / available), read // max(situation.labelled, 1)), 1)  # each reads all labelled texts
    texts = max(min(read // epochs, available), min(situation.labelled, available))
    return choices.model_copy(update={"epochs": epochs, "texts": None if texts >= every else texts})
