"""What a run will do and how long that takes: a short measurement on this machine, and a recipe that fits the time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from probescale.config import RecoveryConfig, RunConfig
from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.models.surgery import keep_layers
from probescale.pipeline.tournament_size import COST, has_tournament
from probescale.pipeline.workbench import Workbench
from probescale.recovery.alternatives.frozen_encoder import MOST_TEXTS
from probescale.recovery.automatic import Situation, choose_recipe, count_available, count_read
from probescale.recovery.inputs import build_inputs, select_model_fields
from probescale.recovery.recipe import Choices
from probescale.utils.files import Record
from probescale.utils.progress import Phases, console, format_duration, parse_time, spinner

BATCH, BATCHES, WARM_UP = 16, 4, 1  # of the measurement
SHARE_OF_LAYERS = 0.75  # of a cut model's parameters: the rest are its embeddings
FIXED_SECONDS = 20.0  # reading, cutting, proving and writing
PROBE_SECONDS = 0.5  # to fit the probes of one layer, controls included
ALLOCATIONS_PROBED = 10  # passes of the sample through half of the layers, to share the budget out
FEWEST_PROBED, FEWEST_SAMPLE = 500, 200  # examples, where there is little time
EFFORTS = (0.05, 3.0)  # least and most that is trained, in comparison with the usual amount


MOST_SLOWER = 3.0  # times; a machine whose pace changes more is not planned for


class Pace(NamedTuple):
    """Seconds per text on this machine."""

    forward: float  # through the original
    train: float  # a training step of the original
    train_cut: float  # a training step of a model of the budget's size


class Schedule(Record):
    """The chosen recipe, and how long each phase should take. Saved as schedule.json."""

    choices: Choices
    probed: int  # largest number of examples per probe
    sample: int  # largest number of examples with which subnetworks are probed
    seconds: dict[str, float]  # by phase, in the order of the work
    pace: Pace
    usual_seconds: float  # what the usual amount of training would take
    limit: float | None = None  # seconds that were allowed

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
        if self.limit is not None and self.usual_seconds > 1.1 * self.limit:
            lines.append(
                f"The usual amount of training would take {format_duration(self.usual_seconds)}; more is kept then."
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
    """The usual amount of training, or as much as the time allows."""
    settings, situation = bench.config.recovery, bench.situation
    limit = parse_time(bench.config.time) if bench.config.time else None

    def plan(effort: float) -> dict[str, float]:
        lighter = bench.with_config(scale_probing(bench.config, situation.labelled, effort))
        return estimate_phases(lighter, choose_recipe(settings, situation, effort), pace)

    effort, usual = 1.0, plan(1.0)
    if limit is not None:
        least, most = EFFORTS
        shortest = sum(plan(least).values())
        if shortest > limit:
            raise UserError(
                f"{bench.config.time} is too short: the least that makes sense takes about {format_duration(shortest)}",
                field="time",
                hint="allow more time, or give fewer rows (task.max_train)",
            )
        effort = _largest(lambda effort: sum(plan(effort).values()) <= limit, least, most)
    config = scale_probing(bench.config, situation.labelled, effort)
    return Schedule(
        choices=choose_recipe(settings, situation, effort),
        probed=config.probing.max_examples,
        sample=config.selection.sample,
        seconds={name: round(value, 1) for name, value in plan(effort).items()},
        pace=pace,
        usual_seconds=round(sum(usual.values()), 1),
        limit=limit,
    )


def scale_probing(config: RunConfig, rows: int, effort: float) -> RunConfig:
    """The same with fewer examples to probe, where there is little time for everything."""
    share = min(effort, 1.0) ** 0.5  # half of the examples tell nearly as much
    probed, sample = config.probing.max_examples, config.selection.sample
    return set_examples(
        config,
        min(probed, max(round(share * min(probed, rows)), FEWEST_PROBED)) if share < 1 else probed,
        min(sample, max(round(share * min(sample, rows)), FEWEST_SAMPLE)) if share < 1 else sample,
    )


def set_examples(config: RunConfig, probed: int, sample: int) -> RunConfig:
    """The configuration with other numbers of examples to probe."""
    parts = {
        "probing": config.probing.model_copy(update={"max_examples": probed}),
        "selection": config.selection.model_copy(update={"sample": sample}),
    }
    return config.model_copy(update=parts)


def estimate_phases(bench: Workbench, choices: Choices, pace: Pace) -> dict[str, float]:
    """Seconds of every phase, in the order of the work."""
    config, situation, layers = bench.config, bench.situation, bench.loaded.layers
    rows, dev = situation.labelled, len(bench.task.dev)
    probed, sample = min(rows, config.probing.max_examples), min(rows, config.selection.sample)
    blocks = sample * ((layers + 1) / 2 + (ALLOCATIONS_PROBED / 2 if len(bench.shrinks) > 1 else 0))
    read = count_read(config.recovery, situation, choices)
    final = read * pace.train_cut
    phases = {
        "probing": (probed + blocks) * pace.forward + layers * PROBE_SECONDS,
        "training the original": choices.original_epochs * rows * pace.train + (rows + dev) * pace.forward,
    }
    if config.recovery.distil:
        answered = count_available(config.recovery, situation, choices.augment)
        phases["training the original"] += min(answered, choices.texts or answered) * pace.forward
    if has_tournament(bench, read):
        phases["tournament"] = COST * final
    phases["training"] = final
    if len(config.compare):
        phases["comparison"] = len(config.compare) * (final + dev * pace.forward)
    encoded = min(rows, MOST_TEXTS) + min(
        count_available(config.recovery, situation, choices.augment) - rows, MOST_TEXTS
    )
    return phases | {"evaluation": FIXED_SECONDS + (encoded + 2 * dev) * pace.forward}


def refit(schedule: Schedule, bench: Workbench, phases: Phases, per_text: float | None = None) -> Choices:
    """The recipe with as many texts as the time that is left allows; where no time was given, as it was planned.

    `per_text`: seconds of a training step per text; by default as measured before the work, corrected by how much
    longer or shorter than planned everything has taken so far.
    """
    settings, choices = bench.config.recovery, bench.chosen_recipe
    if schedule.limit is None or not settings.epochs == settings.texts == "auto":
        return choices
    expected = sum(schedule.seconds.get(name, 0.0) for name in phases.took)
    slower = min(max(phases.elapsed / max(expected, 1.0), 1 / MOST_SLOWER), MOST_SLOWER)
    left = schedule.limit - phases.elapsed - slower * schedule.seconds["evaluation"]
    trainings = 1 + len(bench.config.compare)
    if bench.strategy.reads == "tournament" and "tournament" not in phases.took:
        trainings += COST
    return fit_into(
        choices, settings, bench.situation, max(left, 1.0) / trainings, per_text or slower * schedule.pace.train_cut
    )


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
    epochs = max(min(round(read / available), read // situation.labelled), 1)  # each reads all labelled texts
    texts = max(min(read // epochs, available), min(situation.labelled, available))
    return choices.model_copy(update={"epochs": epochs, "texts": None if texts >= every else texts})


def measure_pace(bench: Workbench) -> Pace:
    """Time a few batches of the data's own texts: forward, and trained, through the original and a smaller model."""
    total, original = bench.shrinker.original.total, sum(bench.shrinker.original.layers)
    limits = [limit.most(total) for limit in bench.budget.limits if limit.unit == "parameters"]
    allowed = min(limits, default=total / 2)
    layers = bench.budget.k or max(round(SHARE_OF_LAYERS * allowed / original * bench.loaded.layers), 1)
    layers = min(layers, bench.loaded.layers)
    fixed = bench.loaded.family.fixed(bench.loaded.model.config)
    kept = tuple(sorted({*fixed, *range(1, layers + 1)}))
    with spinner("measuring this machine"):
        forward, train = _time_model(bench, bench.loaded)
        _, train_cut = _time_model(bench, keep_layers(bench.loaded, kept))
    return Pace(forward, train, train_cut)


def _time_model(bench: Workbench, loaded: LoadedModel) -> tuple[float, float]:
    """Seconds per text of a forward pass, and of a training step."""
    count = BATCH * BATCHES
    texts = bench.task.train.take(range(min(count, len(bench.task.train))))
    inputs = build_inputs(loaded.tokenizer, texts, bench.config.model.max_length)
    model = copy.deepcopy(loaded.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    order = inputs.tokens.by_length.tolist()
    forward, train = [], []
    for first in range(0, len(order), BATCH):
        numbers = order[first : first + BATCH]
        batch = inputs.collate(loaded.tokenizer, [inputs[number] for number in numbers])
        fields = {name: tensor.to(model.device) for name, tensor in select_model_fields(batch).items()}
        begin = time.perf_counter()
        with torch.inference_mode():
            model(**fields)
        middle = time.perf_counter()
        model(**fields).logits.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        forward.append((middle - begin) / len(numbers))
        train.append((time.perf_counter() - middle) / len(numbers))
    skipped = min(WARM_UP, len(forward) - 1)
    return _mean(forward[skipped:]), _mean(train[skipped:])


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


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
