"""The recipe of the final training: what was chosen before, and as much as the time that is left allows."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.schedules import PACE, USUAL, make_bench
from probescale.config import RecoveryConfig
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.outputs import settled_config
from probescale.pipeline.pace import Pace
from probescale.pipeline.rungs import keep_choices, settle_recipe
from probescale.pipeline.schedule import Schedule, plan_schedule, scale_probing
from probescale.pipeline.time_left import fit_to_time_left
from probescale.pipeline.tournament import Candidate, Tournament
from probescale.pipeline.tournament_size import settle_tournament, texts_per_candidate
from probescale.recovery.automatic import choose_recipe, count_read
from probescale.recovery.recipe import Choices
from probescale.utils.progress import Phases


def make_tournament(seconds: float = 8.0, texts: int = 2000) -> Tournament:
    tried = [
        Candidate(
            shrink=ShrinkPlan(),
            kept=(1, 2),
            rule="stitched",
            learning_rate=rate,
            texts=texts,
            loss=loss,
            seconds=seconds,
        )
        for rate, loss in ((1e-4, 0.5), (3e-4, 0.2))
    ]
    return Tournament(rates=tuple(tried), rules=tuple(tried), finals=tuple(tried), constant_loss=1.0)


def clock(schedule: Schedule, elapsed: float, slower: float = 1.0, *done: str) -> Any:
    """The phases of a run after some of them; by default after all."""
    return SimpleNamespace(took=dict.fromkeys(done or schedule.seconds, 1.0), elapsed=elapsed, slower=slower)


def settle(bench: Any, elapsed: float = 100.0, tournament: Tournament | None = None) -> Choices:
    schedule = plan_schedule(bench, PACE)
    bench.chosen_recipe = schedule.choices
    return settle_recipe(schedule, bench, tournament or make_tournament(), clock(schedule, elapsed))


def test_the_final_training_takes_the_best_rate_and_the_time_that_is_left():
    bench = make_bench(time="20m")
    found = [settle(bench, elapsed) for elapsed in (300.0, 700.0, 1100.0)]
    assert {choices.learning_rate for choices in found} == {3e-4}
    reads = [count_read(bench.config.recovery, USUAL, choices) for choices in found]
    assert reads[0] > reads[1] > reads[2] >= USUAL.labelled
    for read, elapsed in zip(reads, (300.0, 700.0, 1100.0), strict=True):
        assert read * 8.0 / 2000 <= 1200 - elapsed


def test_a_full_model_beside_the_result_gets_the_time_of_its_longer_steps():
    text = replace(USUAL, labelled=0, unlabelled=4000, tokens=256.0, running_text=True)
    pace = Pace(forward=0.4, train=1.6, train_cut=0.8)
    left, read = 1000.0, []
    for compare in ([], ["plain_loss"], ["full_model"]):
        selection = {"budget": "70%", "strategy": "block_influence"}
        task = {"train": "t", "kind": "text"}
        bench = make_bench(text, task=task, selection=selection, compare=compare, time="2h", shrink="none")
        schedule = Schedule(
            choices=bench.chosen_recipe, probed=1, sample=1, seconds={"evaluation": 0.0}, pace=pace, usual_seconds=1.0,
            limit=left,
        )  # fmt: skip
        choices = fit_to_time_left(schedule, bench, clock(schedule, 0.0))
        read.append(count_read(bench.config.recovery, text, choices) * pace.train_cut)
    alone, with_plain, with_full = read
    assert with_plain == pytest.approx(alone / 2, rel=0.05)
    assert with_full == pytest.approx(alone / 3, rel=0.05)


def test_what_was_chosen_by_the_clock_is_not_chosen_again(tmp_path):
    """A resumed run has another clock; what was chosen stands in a file."""
    bench = make_bench(time="20m")
    first = keep_choices(tmp_path / "recipe.json", lambda: settle(bench, 300.0))
    assert keep_choices(tmp_path / "recipe.json", lambda: settle(bench, 1100.0)) == first
    assert Choices.load(tmp_path / "recipe.json") == first


@pytest.mark.parametrize("recovery", [{"epochs": 2}, {"texts": 4000}, {"epochs": 1, "texts": 5000}])
def test_texts_and_epochs_of_the_user_are_left_alone(recovery):
    bench = make_bench(time="2h", recovery=recovery)
    planned = plan_schedule(bench, PACE).choices
    found = settle(bench, 10.0)
    assert found == planned.model_copy(update={"learning_rate": 3e-4})
    for name, value in recovery.items():
        assert getattr(found, name) == value


def test_without_a_limit_only_the_rate_is_settled():
    bench = make_bench()
    planned = choose_recipe(RecoveryConfig(), USUAL)
    assert settle(bench) == planned.model_copy(update={"learning_rate": 3e-4})
    schedule = plan_schedule(bench, PACE)
    assert settle_recipe(schedule, bench, None, clock(schedule, 1.0)) == planned


@pytest.mark.parametrize("strategy", ["tried", "stitched"])
def test_what_took_longer_than_planned_leaves_less_to_train(strategy):
    """Also without a tournament, whose short trainings tell how fast a cut model learns here."""
    bench = make_bench(time="20m", selection={"budget": "5x", "strategy": strategy})
    schedule = plan_schedule(bench, PACE)
    bench.chosen_recipe = schedule.choices
    done = ("probing", "training the original")
    planned, reads = sum(schedule.seconds[name] for name in done), []
    for slower in (1.0, 1.5, 2.0):
        choices = fit_to_time_left(schedule, bench, clock(schedule, slower * planned, slower, *done))
        reads.append(count_read(bench.config.recovery, USUAL, choices))
        after = reads[-1] * slower * PACE.train_cut * (1.5 if strategy == "tried" else 1.0)
        assert slower * planned + after + slower * schedule.seconds["evaluation"] <= 1.01 * 1200
    assert reads[0] > reads[1] > reads[2]
    assert reads[0] == pytest.approx(count_read(bench.config.recovery, USUAL, schedule.choices), rel=0.1), "as planned"


def test_time_is_left_for_other_models_that_learn_what_the_original_knows():
    bench = make_bench(replace(USUAL, already_trained=True), compare=[{"model": "other"}], time="20m")
    schedule = plan_schedule(bench, PACE)
    bench.chosen_recipe = schedule.choices
    done = ("probing", "training the original")
    planned = sum(schedule.seconds[name] for name in done)
    choices = fit_to_time_left(schedule, bench, clock(schedule, planned, 1.0, *done))
    read = count_read(bench.config.recovery, bench.situation, choices) * PACE.train_cut * 1.5  # with the tournament
    assert planned + read + schedule.seconds["comparison"] + schedule.seconds["evaluation"] <= 1.01 * 1200


def test_with_little_time_fewer_examples_are_probed():
    config = make_bench().config
    usual, quick = (scale_probing(config, 3000, effort) for effort in (1.0, 0.1))
    assert usual == config
    assert (quick.probing.max_examples, quick.selection.sample) == (949, 316)
    least = scale_probing(config, 100, 0.05)
    assert (least.probing.max_examples, least.selection.sample) == (500, 150), "of 100 rows, all"
    short, long = (plan_schedule(make_bench(time=limit), PACE) for limit in ("4m", "2h"))
    assert short.probed < long.probed == config.probing.max_examples
    assert short.seconds["probing"] < long.seconds["probing"]


def test_a_short_training_that_took_no_time_divides_nothing():
    bench = make_bench(time="2h")
    found = settle(bench, tournament=make_tournament(seconds=0.0))
    assert count_read(bench.config.recovery, USUAL, found) > 0


def test_short_trainings_are_as_long_when_the_settings_are_run_again():
    """The time that was left changed the final training, not the tournament before it."""
    bench = make_bench(time="20m")
    bench.chosen_recipe = plan_schedule(bench, PACE).choices
    texts, bench = texts_per_candidate(bench), settle_tournament(bench)
    settled = settle(bench, 1100.0)
    assert count_read(bench.config.recovery, USUAL, settled) < 50_000
    task = SimpleNamespace(metric="accuracy", positive=None)
    evaluator: Any = SimpleNamespace(config=bench.config, training=SimpleNamespace(choices=settled), task=task)
    config = settled_config(evaluator)
    assert config.selection.trial == texts
    assert config.time is None
    assert choose_recipe(config.recovery, USUAL) == settled


def test_time_before_an_interruption_counts(tmp_path):
    expected = {"probing": 0.1, "training the original": 0.2, "training": 10.0}
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / ".work" / "clock.json"
    path.parent.mkdir()
    path.write_text('{"probing": 60.0, "training the original": 0.0}')
    phases = Phases(expected, path)
    assert phases.elapsed >= 60
    assert phases.slower == pytest.approx(600), "what was done elsewhere took no time, and says nothing"
    stopped = phases.phase("training")
    stopped.__enter__()
    time.sleep(0.15)
    assert not stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None), "it goes on to the user"
    again = Phases(expected, path)
    assert again.took["training"] >= 0.1
    assert again.elapsed >= 60.1
    assert Phases(expected).slower == 1.0, "nothing is known yet"
