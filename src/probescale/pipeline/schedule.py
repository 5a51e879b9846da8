"""What a run will do and how long that takes: a short measurement on this machine, and a recipe that fits the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.pipeline.estimates import estimate_phases
from probescale.pipeline.pace import Pace, measure_pace
from probescale.pipeline.prepare import prepare_again
from probescale.pipeline.workbench import Workbench
from probescale.recovery.automatic import FEWEST_STEPS_OF_ORIGINAL, SMALL_BATCH, choose_recipe
from probescale.recovery.recipe import Choices
from probescale.utils.files import Record
from probescale.utils.progress import console, format_duration, parse_time

FEWEST_PROBED, FEWEST_SAMPLE = 500, 150  # examples, where there is little time
EFFORTS = (0.05, 3.0)  # least and most that is trained, in comparison with the usual amount
ENOUGH_EFFORT = 0.2  # below it, more training of the small model helps more than more labelled rows
USEFUL_EFFORT = 0.1  # texts stay whole as long as there is time for this much training
SHORTER_LENGTHS = (96, 64)  # tokens per text, tried in this order where there is not
WORTH_CUTTING = 0.95  # of the time: texts are not cut where hardly any is as long
DEV_TIME = 0.1  # share of a time limit for the answers to dev
DEV_PASSES = 2.5  # through the fine-tuned original, the frozen encoder, and the small model
FEWEST_DEV = 1000  # rows of dev, where there is no time for all
# Labelled rows, where there is no time for all: of fewer, the original would read each more often.
FEWEST_ROWS = FEWEST_STEPS_OF_ORIGINAL * SMALL_BATCH


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
    tokens: int | None = None  # of a text at most, where there is no time for longer ones

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
        if self.tokens is not None:
            lines.append(f"There is time for the first {self.tokens} tokens of a text; what follows is cut off.")
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
    """The schedule of the usual training; with a time limit, of what fits it.

    Cut in this order: the length of texts, rows of dev, labelled rows, and then how much is trained.
    """
    limit = parse_time(bench.config.time) if bench.config.time else None
    usual, effort = sum(_plan(bench, pace, 1.0).values()), 1.0
    every, whole_dev, longest = bench.situation.labelled, len(bench.task.dev), bench.config.model.max_length
    if limit is not None:
        least, most = EFFORTS
        bench, pace = fit_length(bench, pace, limit)
        bench = fit_rows(fit_dev(bench, pace, limit), pace, limit)
        effort = _largest(lambda effort: sum(_plan(bench, pace, effort).values()) <= limit, least, most)
    rows, dev, tokens = bench.situation.labelled, len(bench.task.dev), bench.config.model.max_length
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
        tokens=tokens if tokens < longest else None,
    )


def _plan(bench: Workbench, pace: Pace, effort: float) -> dict[str, float]:
    """Seconds of every phase of a run that trains this much."""
    lighter = bench.with_config(scale_probing(bench.config, bench.situation.labelled, effort))
    return estimate_phases(lighter, choose_recipe(bench.config.recovery, bench.situation, effort), pace, effort)


def fit_length(bench: Workbench, pace: Pace, limit: float) -> tuple[Workbench, Pace]:
    """The same run with shorter texts, where there is no time for long ones, and how fast those are read."""
    if bench.task.kind.unit != "text" or "max_length" in bench.config.model.model_fields_set:
        return bench, pace
    best, least = (bench, pace), float("inf")
    for tokens in (bench.config.model.max_length, *SHORTER_LENGTHS):
        shorter = bench.with_length(tokens)
        own_pace = pace.for_shorter(shorter.situation.tokens / bench.situation.tokens)
        fewer = fit_dev(shorter, own_pace, limit).with_rows(FEWEST_ROWS)
        seconds = sum(_plan(fewer, own_pace, USEFUL_EFFORT).values())
        if seconds < WORTH_CUTTING * least:
            best, least = (shorter, own_pace), seconds
        if seconds <= limit:
            break
    return best


def fit_dev(bench: Workbench, pace: Pace, limit: float) -> Workbench:
    """The same run with as many rows of dev as are answered in a small part of the time; pairs of texts stay whole."""
    if bench.situation.running_text or (bench.task.kind.encodes and bench.config.task.dev is not None):
        return bench
    most = max(round(DEV_TIME * limit / (DEV_PASSES * pace.forward)), FEWEST_DEV)
    return bench.with_dev(most)


def fit_rows(bench: Workbench, pace: Pace, limit: float) -> Workbench:
    """The same run with as many of the labelled rows as leave time for the small model."""

    def seconds(rows: float, effort: float) -> float:
        return sum(_plan(bench.with_rows(round(rows)), pace, effort).values())

    rows = bench.situation.labelled
    fewest = min(rows, FEWEST_ROWS)
    if (shortest := seconds(fewest, EFFORTS[0])) > limit:
        raise UserError(
            f"{bench.config.time} is too short: the least that makes sense takes about {format_duration(shortest)}",
            field="time",
            hint="allow more time, or take a smaller model or shorter texts (model.max_length)",
        )
    if rows == fewest:
        return bench
    return bench.with_rows(round(_largest(lambda rows: seconds(rows, ENOUGH_EFFORT) <= limit, fewest, rows)))


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
    if any(fewer is not None for fewer in (schedule.rows, schedule.dev, schedule.tokens)):
        rows = schedule.rows
        if schedule.dev is not None and bench.config.task.dev is None:  # rows that leave dev are not learned either
            rows = rows or bench.situation.labelled
        bench = prepare_again(bench, rows, schedule.dev, schedule.tokens)
    bench = bench.with_config(set_examples(bench.config, schedule.probed, schedule.sample))
    return bench.with_recipe(schedule.choices)


def set_examples(config: RunConfig, probed: int, sampled: int) -> RunConfig:
    """The configuration with other numbers of examples to probe."""
    parts = {
        "probing": config.probing.model_copy(update={"max_examples": probed}),
        "selection": config.selection.model_copy(update={"sample": sampled}),
    }
    return config.model_copy(update=parts)


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number between both that fits, to about one per cent; the low one where none does."""
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
