"""How long a run takes, and how much it trains in the time that it has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.schedules import PACE, USUAL, make_bench, trained
from probescale.config import RecoveryConfig
from probescale.errors import Problems, UserError
from probescale.pipeline import schedule as scheduling
from probescale.pipeline.estimates import (
    ALLOCATION_SECONDS,
    ALLOCATIONS_PROBED,
    BLOCK_SECONDS,
    PROBE_SECONDS,
    estimate_phases,
)
from probescale.pipeline.pace import Pace
from probescale.pipeline.schedule import (
    EFFORTS,
    plan_schedule,
)
from probescale.pipeline.sources import count_source_texts
from probescale.pipeline.time_left import fit_into
from probescale.pipeline.tournament_size import count_tournament_texts
from probescale.pipeline.validate import check
from probescale.recovery.automatic import Situation, choose_recipe, count_available, count_read
from probescale.recovery.recipe import Choices
from probescale.utils.progress import parse_time

# Durations


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5h", 5400), (" .5 m ", 30), ("007s", 7)]
)
def test_durations_are_parsed(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "0.0h", "-5m", "5", "abc", "5d", "1e3s", "m", "nanh", "5 m s", "1,5h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UserError, match="is not a duration") as refused:
        parse_time(text)
    assert refused.value.field == "time"
    assert "30m" in refused.value.hint


def test_a_duration_is_checked_with_everything_else(model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert"))},
        "task": {"train": str(task_files.train), "metric": "acuracy"},
        "selection": {"k": 2},
        "time": "soon",
    }
    with pytest.raises(Problems) as error:
        check(raw)
    assert {problem.field for problem in error.value.problems} == {"time", "task.metric"}


# The plan


def test_the_phases_of_a_run():
    bench = make_bench(compare=["top_k", "uniform_k"])
    choices = choose_recipe(bench.config.recovery, USUAL)
    phases = estimate_phases(bench, choices, PACE)
    read = count_read(bench.config.recovery, USUAL, choices)
    assert list(phases) == [
        "probing",
        "training the original",
        "tournament",
        "training",
        "comparison",
        "evaluation",
    ]
    assert all(seconds > 0 for seconds in phases.values())
    assert phases["training"] == pytest.approx(read * PACE.train_cut)
    assert phases["tournament"] < phases["training"]
    assert phases["comparison"] > 2 * phases["training"]
    assert phases["training the original"] > choices.original_epochs * 3000 * PACE.train


def test_other_models_are_trained_where_the_original_is_used_as_it_is():
    took = []
    for before in (False, True):
        bench = make_bench(replace(USUAL, already_trained=before), compare=[{"model": "other"}])
        phases = estimate_phases(bench, bench.chosen_recipe, PACE)
        took.append((phases["training the original"], phases["comparison"]))
    (original, other), (as_it_is, beside_it) = took
    assert original - as_it_is == pytest.approx(3 * 3000 * PACE.train)
    assert other == pytest.approx(beside_it)
    assert other > 3 * 3000 * PACE.train


def test_probes_of_many_classes_take_longer():
    bench = make_bench()
    choices = choose_recipe(bench.config.recovery, USUAL)
    few = estimate_phases(bench, choices, PACE)
    bench.task.train.names = tuple(map(str, range(150)))
    many = estimate_phases(bench, choices, PACE)
    fits = 12 * PROBE_SECONDS + 78 * BLOCK_SECONDS + ALLOCATIONS_PROBED * ALLOCATION_SECONDS
    assert many["probing"] - few["probing"] == pytest.approx(14 * fits)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"selection": {"k": 2, "strategy": "stitched"}}, {"tournament", "comparison"}),
        ({"recovery": {"epochs": 1, "texts": 100}}, {"tournament", "comparison"}),  # too little to tell anything
        ({"recovery": {"distil": False}}, {"comparison"}),
        ({}, {"comparison"}),
    ],
)
def test_what_is_not_done_takes_no_time(changes, missing):
    every = estimate_phases(make_bench(compare=["top_k"]), choose_recipe(RecoveryConfig(), USUAL), PACE)
    bench = make_bench(**changes)
    phases = estimate_phases(bench, choose_recipe(bench.config.recovery, USUAL), PACE)
    assert set(every) - set(phases) == missing


def test_unlabelled_texts_cost_nothing_without_a_teacher():
    totals = []
    for unlabelled in (0, 60_000):
        situation = replace(USUAL, unlabelled=unlabelled)
        bench = make_bench(situation, recovery={"distil": False})
        totals.append(sum(estimate_phases(bench, choose_recipe(bench.config.recovery, situation), PACE).values()))
    assert totals[0] == totals[1]


def test_without_a_limit_the_usual_amount_is_trained():
    bench = make_bench()
    plan = plan_schedule(bench, PACE)
    assert plan.limit is None
    assert plan.choices == choose_recipe(RecoveryConfig(), USUAL)
    assert plan.total == pytest.approx(plan.usual_seconds, abs=1)
    words = "\n".join(plan.lines())
    assert "training the original" in words
    assert "altogether" in words
    assert "usual amount" not in words


def test_a_limit_that_is_too_short_is_refused():
    with pytest.raises(UserError, match=r"^time: 30s is too short: the least that makes sense takes about ") as refused:
        plan_schedule(make_bench(time="30s"), PACE)
    assert refused.value.field == "time"
    assert "smaller model" in refused.value.hint
    least = sum(estimate_phases(make_bench(), choose_recipe(RecoveryConfig(), USUAL, EFFORTS[0]), PACE).values())
    plan = plan_schedule(make_bench(time=f"{least + 1:.0f}s"), PACE)
    assert plan.total <= least + 2, "just enough"


def test_a_short_limit_trains_less_and_says_so():
    usual = plan_schedule(make_bench(), PACE)
    bench = make_bench(time=f"{usual.usual_seconds / 2:.0f}s")
    short = plan_schedule(bench, PACE)
    assert short.total <= usual.usual_seconds / 2 + 1
    assert trained(bench, short) < trained(bench, usual)
    assert "The usual amount of training would take" in short.lines()[-1]


def test_where_there_is_no_time_for_all_rows_some_are_used():
    """A table of 50,000 rows and ten minutes: the original reads some of them, and time is left for the small model."""
    bench = make_bench(replace(USUAL, labelled=50_000, unlabelled=0), time="10m")
    plan = plan_schedule(bench, PACE)
    assert plan.rows is not None
    assert 2400 < plan.rows < 50_000
    assert 0.8 * 600 < plan.total <= 601, "as many as there is time for"
    assert plan.effort >= 0.99 * scheduling.ENOUGH_EFFORT
    assert any(f"{plan.rows:,} of the labelled rows" in line for line in plan.lines())
    longer = plan_schedule(make_bench(replace(USUAL, labelled=50_000, unlabelled=0), time="15m"), PACE)
    assert longer.rows is None or longer.rows > plan.rows
    assert plan_schedule(make_bench(time="10h"), PACE).rows is None


def test_a_large_dev_set_takes_a_small_part_of_the_time():
    bench = make_bench(time="10m")
    bench.task.dev = range(60_000)
    plan = plan_schedule(bench, PACE)
    assert plan.dev == round(0.1 * 600 / (2.5 * PACE.forward))
    assert plan.total <= 601
    assert any(f"{plan.dev:,} rows of dev" in line for line in plan.lines())
    bench.config = make_bench(time="10h").config
    assert plan_schedule(bench, PACE).dev is None
    assert plan_schedule(make_bench(time="10m"), PACE).dev is None


def test_a_long_limit_is_not_used_up():
    bench = make_bench(time="1000h")
    plan = plan_schedule(bench, PACE)
    assert plan.choices == choose_recipe(RecoveryConfig(), USUAL, EFFORTS[1])
    assert plan.total < parse_time("10h")


paces = st.builds(
    Pace,
    forward=st.floats(1e-4, 0.05),
    train=st.floats(1e-3, 0.2),
    train_cut=st.floats(1e-4, 0.1),
    train_rungs=st.just({}),
    train_plainly=st.none(),
)
situations = st.builds(
    Situation,
    hidden_size=st.just(768),
    rate_factor=st.just(1.0),
    labelled=st.integers(50, 100_000),
    unlabelled=st.integers(0, 100_000),
    tokens=st.floats(5, 400),
)


@settings(max_examples=60, deadline=None)
@given(situations, paces, st.floats(1, 20), st.floats(1, 20), st.booleans())
def test_a_longer_limit_never_chooses_less_training(situation, pace, one, other, distil):
    recovery = {"distil": distil}
    bench = make_bench(situation, recovery=recovery)
    least = choose_recipe(bench.config.recovery, situation, EFFORTS[0])
    shortest = sum(estimate_phases(bench, least, pace).values())
    plans = []
    for factor in sorted((one, other)):
        limited = make_bench(situation, recovery=recovery, time=f"{factor * shortest + 1:.3f}s")
        plans.append(plan_schedule(limited, pace))
        assert plans[-1].limit is not None
        assert plans[-1].total <= plans[-1].limit + 1, "within the limit, but for the rounding of phases"
    (short, few), (long, many) = (trained(bench, plan) for plan in plans)
    assert short <= long
    assert few <= many


@pytest.mark.parametrize("limit", ["20m", "10h"])
def test_a_limit_changes_nothing_that_the_user_set(limit):
    given_by_user = {"epochs": 1, "learning_rate": 1e-5, "batch_size": 8, "texts": 9000, "original": {"epochs": 1}}
    plan = plan_schedule(make_bench(time=limit, recovery=given_by_user), PACE)
    assert (plan.choices.epochs, plan.choices.texts, plan.choices.original_epochs) == (1, 9000, 1)
    assert (plan.choices.learning_rate, plan.choices.batch_size) == (1e-5, 8)


# As many texts as there is time for


@settings(deadline=None)
@given(situations, st.floats(1, 1e5), st.floats(1, 1e5), st.floats(1e-5, 0.1))
def test_the_recipe_fits_into_the_time_that_is_left(situation, one, other, per_text):
    config = RecoveryConfig()
    planned = choose_recipe(config, situation)
    most = count_read(config, situation, choose_recipe(config, situation, EFFORTS[1]))
    reads = []
    for seconds in sorted((one, other)):
        fitted = fit_into(planned, config, situation, seconds, per_text)
        reads.append(count_read(config, situation, fitted))
        labelled = fitted.epochs * situation.labelled  # always read
        assert reads[-1] <= max(seconds / per_text + 1, labelled)
        assert reads[-1] <= most, "time that brings nothing is not used up"
        available = count_available(config, situation, fitted.augment)
        assert fitted.texts is None or situation.labelled <= fitted.texts < available
        kept = {"epochs": planned.epochs, "texts": planned.texts}
        assert fitted.model_copy(update=kept) == planned, "nothing else changes"
    assert reads[0] <= reads[1]


def test_the_time_is_used_where_more_texts_help():
    config, planned = RecoveryConfig(), choose_recipe(RecoveryConfig(), USUAL)
    for seconds in (60, 200, 400):
        read = count_read(config, USUAL, fit_into(planned, config, USUAL, seconds, 0.004))
        assert 0.6 * seconds / 0.004 <= read <= seconds / 0.004


# A ladder


@pytest.mark.parametrize(("situation", "most"), [(USUAL, 1.5), (replace(USUAL, unlabelled=0), 1.56)])
def test_all_rungs_read_little_more_than_two_sizes_alone(situation, most):
    """2x, 3x, 5x, 10x and 20x in one run, against a run for 5x and one for 10x: the texts that they read."""

    def count_alone(times_smaller: float) -> int:
        bench = make_bench(replace(situation, times_smaller=times_smaller))
        return count_texts(bench, choose_recipe(bench.config.recovery, bench.situation)) + count_original(bench)

    ladder = make_bench(situation, selection={"ladder": ["2x", "3x", "5x", "10x", "20x"]})
    rungs = ladder.rungs.values()
    together = count_original(ladder) + sum(
        count_texts(rung, choose_recipe(rung.config.recovery, rung.situation)) for rung in rungs
    )
    assert together <= most * (count_alone(5) + count_alone(10))


def count_texts(bench: Any, choices: Choices) -> int:
    """Texts that one size reads: short trainings and the final one."""
    read = count_read(bench.config.recovery, bench.situation, choices)
    sources = 2 * count_source_texts(read) if bench.follows else 0
    return read + count_tournament_texts(bench, read) + sources


def count_original(bench: Any) -> int:
    """Texts that the original learns from and answers."""
    choices = choose_recipe(bench.config.recovery, bench.situation)
    answered = count_available(bench.config.recovery, bench.situation, choices.augment)
    return choices.original_epochs * bench.situation.labelled + answered


def test_the_estimate_of_a_ladder_has_every_rung():
    bench = make_bench(selection={"ladder": ["2x", "10x"]})
    pace = PACE._replace(train_rungs={"2x": 0.008, "10x": 0.002})
    plan = plan_schedule(bench, pace)
    assert {"2x: tournament", "2x: training", "10x: tournament", "10x: training"} <= plan.seconds.keys()
    assert plan.seconds["10x: tournament"] < 0.2 * plan.seconds["10x: training"], (
        "what 2x has learned is not tried again"
    )
    limited = plan_schedule(make_bench(selection={"ladder": ["2x", "10x"]}, time="10m"), pace)
    assert limited.total <= 600
    assert limited.effort < 1
