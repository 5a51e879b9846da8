"""Plans by the measured pace of a real machine, with real models and data."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from helpers.schedules import PACE, USUAL, make_bench
from probescale.config import RecoveryConfig, ShrinkConfig
from probescale.errors import UserError
from probescale.pipeline import schedule as scheduling
from probescale.pipeline.estimates import (
    estimate_phases,
)
from probescale.pipeline.pace import Pace, _usual_layers, measure_pace
from probescale.pipeline.prepare import prepare, prepare_again
from probescale.pipeline.schedule import (
    EFFORTS,
    Schedule,
    follow_schedule,
    make_schedule,
    plan_schedule,
)
from probescale.pipeline.validate import check
from probescale.recovery import automatic
from probescale.recovery.automatic import choose_recipe
from probescale.tasks.documents import Documents
from probescale.utils.yaml_files import read_yaml


@pytest.fixture(scope="module")
def bench(model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"budget": "2x"},
    }
    return prepare(check(raw))


def test_measuring_changes_nothing(bench):
    before = copy.deepcopy(bench.loaded.model.state_dict())
    pace = measure_pace(bench)
    assert 0 < pace.forward < pace.train
    assert pace.train_cut > 0
    assert all(value.equal(before[name]) for name, value in bench.loaded.model.state_dict().items())
    assert not bench.loaded.model.training
    assert all(parameter.grad is None for parameter in bench.loaded.model.parameters())


@pytest.fixture
def learned(monkeypatch) -> list[int]:
    """How many parameters every measured training learns."""
    counts: list[int] = []

    class Spy(torch.optim.AdamW):
        def __init__(self, parameters, **settings):
            parameters = list(parameters)
            counts.append(sum(parameter.numel() for parameter in parameters))
            super().__init__(parameters, **settings)

    monkeypatch.setattr(torch.optim, "AdamW", Spy)
    return counts


def with_recovery(bench, **settings):
    """The same run with other settings of `recovery`."""
    recovery = RecoveryConfig.model_validate(settings)
    return bench.with_config(bench.config.model_copy(update={"recovery": recovery}))


def test_adapters_are_measured_where_they_are_trained(bench, learned):
    measure_pace(bench)
    measure_pace(with_recovery(bench, adapters="lora", adapter_rank=2))
    subnetwork, original, adapted_subnetwork, adapted_original = learned
    assert original == bench.shrinker.original.total
    assert adapted_original < original / 4
    assert adapted_subnetwork < subnetwork / 4


def test_states_are_computed_twice_where_that_saves_memory(bench):
    block, training = bench.loaded.family.layers(bench.loaded.model)[0], []
    part = next(module for module in block.modules() if isinstance(module, torch.nn.Linear))
    hook = part.register_forward_hook(lambda module, *_: training.append(module.training))  # copied with the original
    passes = []
    for save_memory in (False, True):
        training.clear()
        measure_pace(with_recovery(bench, save_memory=save_memory))
        passes.append(training.count(True))
    hook.remove()
    assert passes[0] > 1
    assert passes[1] == 2 * passes[0]
    assert not bench.loaded.model.is_gradient_checkpointing


def test_an_original_that_is_used_as_it_is_is_not_trained_to_measure(bench, learned):
    as_it_is = with_recovery(bench, original={"epochs": 0})
    limited = as_it_is.with_config(as_it_is.config.model_copy(update={"time": "30m"}))
    pace = measure_pace(limited)
    assert len(learned) == 1
    assert learned[0] < bench.shrinker.original.total
    kept = len(_usual_layers(bench))
    assert pace.train == pytest.approx(pace.train_cut * bench.loaded.layers / kept), "by its layers"
    assert pace.train_plainly is None
    phases = estimate_phases(limited, limited.chosen_recipe, pace)
    assert phases["evaluation"] > 0


def test_a_generative_model_is_trained_whole_only_as_a_reference(text_run, learned):
    raw = read_yaml(text_run / "run" / "config.yaml")
    original = prepare(check(raw)).shrinker.original.total
    for compare, trained in ((["plain_loss"], False), (["full_model"], True)):
        learned.clear()
        bench = prepare(check(raw | {"compare": compare}))
        assert bench.chosen_recipe.original_epochs == 0
        pace = measure_pace(bench)
        assert (original in learned) == trained
        assert 0 < pace.train_cut < pace.train


def test_a_schedule_is_measured_once(bench, tmp_path, monkeypatch):
    path = tmp_path / "schedule.json"
    first = make_schedule(bench, path)
    assert Schedule.load(path) == first

    def again(_bench):
        raise AssertionError("measured again")

    monkeypatch.setattr(scheduling, "measure_pace", again)
    assert make_schedule(bench, path) == first
    assert first.choices == bench.chosen_recipe


def test_fewer_rows_are_those_that_the_settings_of_the_run_give_again(bench, monkeypatch):
    monkeypatch.setattr(scheduling, "FEWEST_ROWS", 40)
    monkeypatch.setattr(automatic, "FEWEST_STEPS_OF_ORIGINAL", 1)
    slow = Pace(forward=0.01, train=0.2, train_cut=0.02)
    enough_for_80 = sum(scheduling._plan(bench.with_rows(80), slow, EFFORTS[0]).values())
    timed = bench.with_config(bench.config.model_copy(update={"time": f"{enough_for_80:.0f}s"}))
    plan = plan_schedule(timed, slow)
    assert plan.rows is not None
    assert 40 <= plan.rows < 120
    followed = follow_schedule(timed, plan)
    assert len(followed.task.train) == plan.rows == followed.config.task.max_train
    again = prepare(followed.config)
    assert again.task.train.texts == followed.task.train.texts
    assert again.shrinker.texts.texts == followed.shrinker.texts.texts
    assert followed.provenance == again.provenance, "it names the data that are used"
    fewer = prepare_again(bench, None, 10, None)
    assert (len(fewer.task.train), len(fewer.task.dev)) == (120, 10)
    assert prepare(fewer.config).task.dev.texts == fewer.task.dev.texts


def test_rows_that_leave_a_dev_part_of_train_are_not_learned(bench):
    task = bench.config.task.model_copy(update={"dev": None})
    held_out = prepare(bench.config.model_copy(update={"task": task}))
    labelled, dev = len(held_out.task.train), len(held_out.task.dev)
    schedule = plan_schedule(held_out, PACE).model_copy(update={"dev": dev - 5})
    followed = follow_schedule(held_out, schedule)
    assert (len(followed.task.train), len(followed.task.dev)) == (labelled, dev - 5)


def test_texts_are_not_cut_where_that_saves_nothing():
    """With little time for a large dev set, or for short texts, a shorter length would not help."""
    pace = Pace(forward=0.015, train=0.045, train_cut=0.015)
    bench = make_bench(replace(USUAL, labelled=20_000, unlabelled=0, tokens=30.0), time="10m")
    bench.task.dev = range(10_000)
    plan = plan_schedule(bench, pace)
    assert plan.dev is not None
    assert plan.tokens is None
    assert plan_schedule(make_bench(time="3m"), PACE).tokens is None


def test_running_text_has_no_rows_to_leave_out():
    """Between the least that is trained and what is worth more rows lie many limits: each of them has a plan."""
    text = replace(USUAL, labelled=0, unlabelled=4000, tokens=256.0, running_text=True)
    pace = Pace(forward=0.4, train=1.2, train_cut=0.8)
    bench = make_bench(text, task={"train": "t", "kind": "text"}, shrink="none")
    kind = SimpleNamespace(unit="token", encodes=False)
    bench.task = SimpleNamespace(dev=Documents(("some text",) * 20), kind=kind)
    least, enough = (sum(scheduling._plan(bench, pace, effort).values()) for effort in (EFFORTS[0], 0.2))
    for limit in (1.05 * least, 0.5 * (least + enough), 2 * enough):
        bench.config = bench.config.model_copy(update={"time": f"{limit:.0f}s"})
        assert plan_schedule(bench, pace).total <= limit + 1


def test_a_ladder_keeps_the_sizes_that_were_planned(bench):
    ladder = bench.with_selection(ladder="auto", budget=None, k=None)
    assert list(prepare_again(ladder, 40, None, None).rungs) == list(ladder.rungs)


def test_long_texts_are_cut_shorter_before_a_time_is_refused():
    long, pace = replace(USUAL, tokens=120.0), Pace(forward=0.02, train=0.06, train_cut=0.02)
    whole = sum(scheduling._plan(make_bench(long).with_rows(2400), pace, scheduling.USEFUL_EFFORT).values())
    enough, short = (plan_schedule(make_bench(long, time=f"{share * whole:.0f}s"), pace) for share in (1.3, 0.7))
    assert enough.tokens is None
    assert short.tokens in scheduling.SHORTER_LENGTHS
    assert short.total <= 0.7 * whole
    assert short.pace.forward == pytest.approx(pace.forward * short.tokens / 120)
    assert any(f"first {short.tokens} tokens" in line for line in short.lines())
    model = {"source": "m", "max_length": 128}
    with pytest.raises(UserError, match="too short"):  # a length that was set stays
        plan_schedule(make_bench(long, time=f"{0.7 * whole:.0f}s", model=model), pace)


def test_a_run_with_shorter_texts_is_one_with_that_length_in_its_settings(bench):
    followed = prepare_again(bench, None, None, 12)
    assert followed.config.model.max_length == 12
    assert followed.situation.tokens == prepare(followed.config).situation.tokens <= 12 < bench.situation.tokens


def test_an_original_that_is_cut_short_has_no_dropout_and_is_timed_without():
    pace = PACE._replace(train_plainly=PACE.train / 2)
    usual, hasty = (choose_recipe(RecoveryConfig(), USUAL, effort) for effort in (1.0, 0.05))
    assert (usual.original_dropout, hasty.original_dropout) == (None, 0.0)
    times = [estimate_phases(make_bench(), hasty, one)["training the original"] for one in (PACE, pace)]
    assert times[0] - times[1] == pytest.approx(hasty.original_epochs * USUAL.labelled * PACE.train / 2)
    fixed = RecoveryConfig.model_validate({"original": {"epochs": 10}})
    assert choose_recipe(fixed, USUAL, 0.05).original_dropout is None, "ten passes are not few"


@pytest.mark.parametrize("times", [1.5, 3.0, 10.0])
def test_a_budget_in_megabytes_is_one_in_parameters(bench, times):
    megabytes = bench.shrinker.original.total / times * 4 / 1e6
    by_size, by_share = (bench.with_budget(budget) for budget in (f"{megabytes:.6f}MB", f"{times}x"))
    assert by_size.times_smaller == pytest.approx(by_share.times_smaller, rel=1e-3) == pytest.approx(times, rel=1e-3)
    assert _usual_layers(by_size) == _usual_layers(by_share)
    assert by_size.situation.times_smaller == pytest.approx(times, rel=1e-3)
    assert by_size.chosen_recipe.epochs == by_share.chosen_recipe.epochs
    both = bench.with_selection(budget=("1.2x", f"{megabytes:.6f}MB"))
    assert both.times_smaller == pytest.approx(times, rel=1e-3), "the smaller one counts"


def test_no_more_layers_are_searched_than_megabytes_allow(bench):
    shrink = ShrinkConfig(vocabulary="all", rank="full", units="all")
    whole = bench.with_config(bench.config.model_copy(update={"shrink": shrink}))
    megabytes = whole.shrinker.original.total * 4 / 1e6
    most = [whole.with_budget(f"{share * megabytes:.6f}MB").most_layers() for share in (0.8, 1.01)]
    assert most == [whole.with_budget(budget).most_layers() for budget in ("80%", "100%")]
    assert most[0] < most[1] == whole.loaded.layers


def test_the_situation_is_that_of_model_and_data(bench):
    situation = bench.situation
    assert (situation.hidden_size, situation.labelled, situation.unlabelled) == (32, 120, 0)
    assert situation.already_trained is False
    assert 10 < situation.tokens < 30
