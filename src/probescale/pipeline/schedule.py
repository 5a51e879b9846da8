"""What a run will do and how long that takes: a short measurement on this machine, and a recipe that fits the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probescale.config import RecoveryConfig, RunConfig
from probescale.errors import UserError
from probescale.pipeline.pace import Pace, measure_pace
from probescale.pipeline.removals import CALIBRATION_TOKENS
from probescale.pipeline.sources import count_source_texts
from probescale.pipeline.tournament_size import BELOW, FULL, count_tournament_texts, has_tournament
from probescale.pipeline.workbench import Workbench
from probescale.probing.lens import LENS_TOKENS
from probescale.recovery.alternatives.frozen_encoder import MOST_TEXTS
from probescale.recovery.automatic import (
    FEWEST_STEPS_OF_ORIGINAL,
    SMALL_BATCH,
    Situation,
    choose_recipe,
    count_available,
    count_read,
)
from probescale.recovery.health import CHECKED_TEXTS
from probescale.recovery.recipe import Choices
from probescale.utils.files import Record
from probescale.utils.progress import Phases, console, format_duration, parse_time

FIXED_SECONDS = 20.0  # reading, cutting, proving and writing
PROBE_SECONDS = 0.5  # to fit the probes of one layer, controls included
BLOCK_SECONDS = 0.25  # to fit the probes of one contiguous block
ALLOCATIONS_PROBED = 11  # smaller parts, each shrunk and probed in half of the layers
ALLOCATION_SECONDS = 2.0  # for each of them
FEWEST_PROBED, FEWEST_SAMPLE = 500, 200  # examples, where there is little time
EFFORTS = (0.05, 3.0)  # least and most that is trained, in comparison with the usual amount
DEV_TIME = 0.15  # share of a time limit for the answers to dev
DEV_PASSES = 2.5  # through the fine-tuned original, the frozen encoder, and the small model
FEWEST_DEV = 1000  # rows of dev, where there is no time for all
# Labelled rows, where there is no time for all: of fewer, the original would read each more often.
FEWEST_ROWS = FEWEST_STEPS_OF_ORIGINAL * SMALL_BATCH


BYTES_PER_TOKEN = 4  # of running text, about
MOST_SLOWER = 3.0  # times; a machine whose pace changes more is not planned for


class Schedule(Record):
    """The chosen recipe, and how long each phase should take. Saved as schedule.json."""

    choices: Choices
    probed: int  # largest number of examples per probe
    sample: int  # largest number of examples with which subnetworks are probed
    seconds: dict[str, float]  # by phase, in the order of the work
    pace: Pace
    usual_seconds: float  # what the usual amount of training would take
    effort: float = 1.0  # how much is trained, in comparison with the usual amount
    limit: float | None = None  # seconds that were allowed
    rows: int | None = None  # of the labelled ones, where there is no time for all
    dev: int | None = None  # rows of dev that are answered, where there is no time for all

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def lines(self) -> list[str]:
        """The plan for a person: phases, the whole, and what more time would buy."""
        shown = [
            f"  {name:<22} {format_duration(seconds):>8}" for name, seconds in self.seconds.items() if seconds >= 1
        ]
        lines = ["What it will do, and about how long that takes here:", *shown]
        lines.append(f"  {'altogether':<22} {format_duration(self.total):>8}")
        if self.rows is not None:
            lines.append(f"There is time for {self.rows:,} of the labelled rows; the others are left out.")
        if self.dev is not None:
            lines.append(f"There is time to answer {self.dev:,} rows of dev; figures are less certain than with all.")
        if self.limit is not None and self.usual_seconds > 1.1 * self.limit:
            lines.append(
                f"The usual amount of training would take {format_duration(self.usual_seconds)}; the small model would "
                "probably keep more of the original's quality then."
            )
        return lines


def make_schedule(bench: Workbench, path: Path | None = None, shared: Path | None = None) -> Schedule:
    """Measure this machine, and choose how much to train. Kept in a file, as times differ when measured again.

    `shared`: the file of runs that share the original. Where time is limited, they share the whole recipe; else each
    size has its own, by the same measurement.
    """
    if path and path.exists():
        return Schedule.load(path)
    common = Schedule.load(shared) if shared else None
    if common and common.limit is not None:
        schedule = common
    else:
        schedule = plan_schedule(bench, common.pace if common else measure_pace(bench))
    if path:
        schedule.save(path)
    return schedule


def plan_schedule(bench: Workbench, pace: Pace) -> Schedule:
    """The usual amount of training, or as much as the time allows; with fewer rows, where there is no time for all."""
    limit = parse_time(bench.config.time) if bench.config.time else None
    usual, effort = sum(_plan(bench, pace, 1.0).values()), 1.0
    every, whole_dev = bench.situation.labelled, len(bench.task.dev)
    if limit is not None:
        least, most = EFFORTS
        bench = fit_rows(fit_dev(bench, pace, limit), pace, limit)
        effort = _largest(lambda effort: sum(_plan(bench, pace, effort).values()) <= limit, least, most)
    rows, dev = bench.situation.labelled, len(bench.task.dev)
    config = scale_probing(bench.config, rows, effort)
    return Schedule(
        choices=choose_recipe(bench.config.recovery, bench.situation, effort),
        probed=config.probing.max_examples,
        sample=config.selection.sample,
        seconds={name: round(value, 1) for name, value in _plan(bench, pace, effort).items()},
        pace=pace,
        usual_seconds=round(usual, 1),
        effort=effort,
        limit=limit,
        rows=rows if rows < every else None,
        dev=dev if dev < whole_dev else None,
    )


def _plan(bench: Workbench, pace: Pace, effort: float) -> dict[str, float]:
    """Seconds of every phase of a run that trains this much."""
    lighter = bench.with_config(scale_probing(bench.config, bench.situation.labelled, effort))
    return estimate_phases(lighter, choose_recipe(bench.config.recovery, bench.situation, effort), pace, effort)


def fit_dev(bench: Workbench, pace: Pace, limit: float) -> Workbench:
    """The same run with as many rows of dev as are answered in a small part of the time."""
    most = max(round(DEV_TIME * limit / (DEV_PASSES * pace.forward)), FEWEST_DEV)
    return bench if bench.situation.running_text else bench.with_dev(most)


def fit_rows(bench: Workbench, pace: Pace, limit: float) -> Workbench:
    """The same run with as many of the labelled rows as there is time for, at the least that is trained."""

    def shortest(rows: float) -> float:
        return sum(_plan(bench.with_rows(round(rows)), pace, EFFORTS[0]).values())

    rows = bench.situation.labelled
    fewest = min(rows, FEWEST_ROWS)
    if shortest(fewest) > limit:
        raise UserError(
            f"{bench.config.time} is too short: the least that makes sense takes about "
            f"{format_duration(shortest(fewest))}",
            field="time",
            hint="allow more time, or take a smaller model or shorter texts (model.max_length)",
        )
    return bench.with_rows(round(_largest(lambda rows: shortest(rows) <= limit, fewest, rows)))


def choose_rung_recipe(rung: Workbench, schedule: Schedule) -> Choices:
    """The recipe of one rung of a ladder: the same texts as for all others, read more or less often."""
    return choose_recipe(rung.config.recovery, rung.situation, schedule.effort)


def scale_probing(config: RunConfig, rows: int, effort: float) -> RunConfig:
    """The same with fewer examples to probe, where there is little time for everything."""
    share = min(effort, 1.0) ** 0.5  # half of the examples tell nearly as much
    probed, sampled = config.probing.max_examples, config.selection.sample
    return set_examples(
        config,
        min(probed, max(round(share * min(probed, rows)), FEWEST_PROBED)) if share < 1 else probed,
        min(sampled, max(round(share * min(sampled, rows)), FEWEST_SAMPLE)) if share < 1 else sampled,
    )


def follow_schedule(bench: Workbench, schedule: Schedule) -> Workbench:
    """The same run with the rows, examples and recipe of a schedule."""
    if schedule.rows is not None or schedule.dev is not None:
        bench = bench.prepare_again(schedule.rows, schedule.dev)
    bench = bench.with_config(set_examples(bench.config, schedule.probed, schedule.sample))
    return bench.with_recipe(schedule.choices)


def set_examples(config: RunConfig, probed: int, sampled: int) -> RunConfig:
    """The configuration with other numbers of examples to probe."""
    parts = {
        "probing": config.probing.model_copy(update={"max_examples": probed}),
        "selection": config.selection.model_copy(update={"sample": sampled}),
    }
    return config.model_copy(update=parts)


def name_phase(rung: str, what: str) -> str:
    """The name of a phase that every rung of a ladder has.

    >>> name_phase("5x", "training"), name_phase("", "training")
    ('5x: training', 'training')
    """
    return f"{rung}: {what}" if rung else what


def estimate_phases(bench: Workbench, choices: Choices, pace: Pace, effort: float = 1.0) -> dict[str, float]:
    """Seconds of every phase, in the order of the work. `effort`: as the choices have it, for the rungs of a ladder."""
    if bench.situation.running_text:
        return estimate_text_phases(bench, choices, pace)
    config, situation, layers = bench.config, bench.situation, bench.loaded.layers
    rows, dev = situation.labelled, len(bench.task.dev)
    probed, sampled = min(rows, config.probing.max_examples), min(rows, config.selection.sample)
    blocks, allocations = layers * (layers + 1) / 2, ALLOCATIONS_PROBED if len(bench.shrinks) > 1 else 0
    passes = probed + sampled * (blocks / layers + allocations / 2)
    fits = layers * PROBE_SECONDS + blocks * BLOCK_SECONDS + allocations * ALLOCATION_SECONDS
    as_original = choices.original_epochs * rows * pace.train + (min(rows, CHECKED_TEXTS) + dev) * pace.forward
    phases = {"probing": passes * pace.forward + fits, "training the original": as_original}
    if config.recovery.distil:
        answered = count_available(config.recovery, situation, choices.augment)
        phases["training the original"] += min(answered, choices.texts or answered) * pace.forward
    for name, rung in bench.rungs.items():
        own = choose_recipe(config.recovery, rung.situation, effort) if name else choices
        phases |= _estimate_rung(rung, name, count_read(config.recovery, situation, own), pace.for_rung(name))
    others, models = len(bench.strategies) - 1, len(config.other_models)
    if others or models:
        final = count_read(config.recovery, situation, choices) * pace.train_cut
        phases["comparison"] = others * (final + dev * pace.forward) + models * as_original
    most = min(MOST_TEXTS, config.probing.max_examples)  # labelled texts, and as many others
    encoded = min(rows, most) + min(count_available(config.recovery, situation, choices.augment) - rows, most)
    rungs = len(bench.rungs)
    by_rungs = dev * pace.forward * sum(pace.for_rung(name) for name in bench.rungs) / pace.train
    evaluation = rungs * FIXED_SECONDS + (encoded + dev) * pace.forward + by_rungs
    return phases | {"evaluation": evaluation}


def _estimate_rung(rung: Workbench, name: str, read: int, per_text: float) -> dict[str, float]:
    """Seconds of the phases that every size has; `read`: texts of its final training."""
    phases: dict[str, float] = {}
    if has_tournament(rung, read):
        phases[name_phase(name, "tournament")] = count_tournament_texts(rung, read) * per_text
    compared = 2 * count_source_texts(read) if rung.follows else 0  # cut from the original, and from the rung above
    return phases | {name_phase(name, "training"): (read + compared) * per_text}


def estimate_text_phases(bench: Workbench, choices: Choices, pace: Pace) -> dict[str, float]:
    """The same for running text, whose texts are blocks."""
    situation, layers = bench.situation, bench.loaded.layers
    read = count_read(bench.config.recovery, situation, choices)
    answered = choices.texts or situation.unlabelled
    dev = sum(len(text) for text in bench.task.dev.texts) / BYTES_PER_TOKEN / situation.tokens
    calibration = CALIBRATION_TOKENS / situation.tokens * layers**2 / 12 if "drop_loss" in bench.strategies else 0
    trained = choices.original_epochs * situation.unlabelled * pace.train
    references = bench.config.references
    others, full = len(bench.strategies) - 1 + len(references), "full_model" in references
    return {
        "probing": LENS_TOKENS / situation.tokens * pace.forward,
        "training the original": trained + (dev + answered * bench.config.recovery.distil) * pace.forward,
        "taking out layers": calibration * pace.forward,
        "training": read * pace.train_cut,
        "comparison": others * (read * pace.train_cut + dev * pace.forward) + full * read * pace.train,
        "evaluation": FIXED_SECONDS + dev * pace.forward,
    }


def refit(schedule: Schedule, bench: Workbench, phases: Phases, per_text: float | None = None) -> Choices:
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
    if others := len(bench.config.other_models):  # each about as long as the original
        left -= others * phases.took.get("training the original", slower * schedule.seconds["training the original"])
    if bench.rung:  # a share for this rung, the rest for those below it
        left *= _share_of_rung(schedule, bench.rung, phases)
    trainings = float(len(bench.strategies) + len(bench.config.references))
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

    More time than that of the most that makes sense is not used up.
    """
    every = count_available(settings, situation, choices.augment)
    available = min(every, choices.texts or every)  # those that the teacher has answered
    most = count_read(settings, situation, choose_recipe(settings, situation, EFFORTS[1]))
    read = max(min(round(seconds / per_text), most), 1)
    epochs = max(min(round(read / available), read // max(situation.labelled, 1)), 1)  # each reads all labelled texts
    texts = max(min(read // epochs, available), min(situation.labelled, available))
    return choices.model_copy(update={"epochs": epochs, "texts": None if texts >= every else texts})


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number between both that fits, to about one per cent; the low one does."""
    if fits(high):
        return high
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def show_schedule(schedule: Schedule) -> None:
    """Print the plan before the work."""
    for line in schedule.lines():
        console.print(line)
