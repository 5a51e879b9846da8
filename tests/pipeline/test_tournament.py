"""Runs that train candidates for a short while before they select one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probescale.config import RecoveryConfig, RunConfig
from probescale.errors import Diverged, Problems, UserError
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline import run as pipeline
from probescale.pipeline.schedule import Schedule
from probescale.pipeline.smallest import smallest
from probescale.pipeline.tournament import AS_GOOD, BETTER_RATE, RULES, Candidate, Tournament, run_tournament
from probescale.pipeline.tournament_size import (
    FULL,
    SMALL,
    TournamentSize,
    choose_size,
    has_tournament,
    texts_per_candidate,
)
from probescale.pipeline.training import Training
from probescale.pipeline.validate import check, load_config
from probescale.recovery.answered_texts import FROM_SHORT_TRAININGS
from probescale.recovery.automatic import Situation, choose_recipe, count_available, count_read
from probescale.recovery.recipe import Choices
from probescale.recovery.result import RunResult
from probescale.recovery.short_training import ShortTraining
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection
from probescale.selection.strategies import STRATEGIES

TEXTS = 200


def raw_config(model_folder, task_files, **selection):
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"strategy": "tried", "budget": "45%", "trial": TEXTS, **selection},
        "shrink": "auto",
        "compare": ["top_k"],
        "recovery": {"batch_size": 16, "augment": 0, "original": {"epochs": 6, "learning_rate": 3e-3}},
        "time": "10m",  # longer than it can use
    }


@pytest.fixture(scope="module")
def tried(model_folder, task_files, tmp_path_factory):
    out = tmp_path_factory.mktemp("tried") / "out"
    return out, pipeline.run(check(raw_config(model_folder, task_files)), out)


def timeless(tournament: Tournament) -> Tournament:
    """The same without what a clock measured."""
    rounds = {
        name: tuple(one.model_copy(update={"seconds": 0.0}) for one in getattr(tournament, name))
        for name in FULL.longer
    }
    return tournament.model_copy(update=rounds)


@pytest.mark.slow
def test_the_candidate_that_learns_most_is_kept(tried):
    out, result = tried
    trials = Tournament.load(out / "tournament.json")
    assert trials.winner.loss == min(one.loss for one in trials.finals) < trials.constant_loss
    assert trials.finals[0].kept == trials.rules[0].kept, "what probes propose is always a finalist"
    assert trials.finals[1].kept == min(trials.rules[1:], key=lambda one: one.loss).kept
    assert len(trials.finals) == 1 + FULL.finalists
    for attempts in (trials.allocations, trials.rules, trials.finals):
        assert trials.has_learned(attempts)
        assert len({(str(one.shrink), one.kept) for one in attempts}) == len(attempts) > 1
    [used] = {str(one.shrink) for one in trials.rules}
    [loss] = [one.loss for one in trials.allocations if str(one.shrink) == used]
    assert AS_GOOD * loss <= min(one.loss for one in trials.allocations), "the best, or more layers that are as good"
    assert len(trials.allocations) <= FULL.allocations
    for name, longer in FULL.longer.items():
        assert {one.texts for one in getattr(trials, name)} == ({longer * TEXTS} if name != "slow" else set())
    assert result.subnetwork.kept == trials.winner.kept
    assert result.subnetwork.params <= 0.45 * result.original.params
    split = f"; subnetworks with {trials.winner.shrink}" if trials.winner.shrink else ""
    assert result.recipe.endswith(f"seed 0{split}"), "models that are compared have the same split"


@pytest.mark.slow
def test_the_learning_rate_is_chosen_first_and_used_ever_after(tried):
    out, result = tried
    trials = Tournament.load(out / "tournament.json")
    usual = Schedule.load(out / "schedule.json").choices.learning_rate
    assert [one.learning_rate for one in trials.rates] == pytest.approx(
        [factor * usual for factor in FULL.rates], rel=0.02
    )
    assert len({(str(one.shrink), one.kept, one.texts) for one in trials.rates}) == 1, "nothing else differs"
    assert trials.learning_rate in [one.learning_rate for one in trials.rates]
    later = (*trials.allocations, *trials.rules, *trials.finals)
    assert {one.learning_rate for one in later} == {trials.learning_rate}
    assert Choices.load(out / "recipe.json").learning_rate == trials.learning_rate
    assert f"learning rate {trials.learning_rate:g}" in result.recipe
    assert load_config(out / "config.yaml").recovery.learning_rate == trials.learning_rate


def candidate(loss: float, rate: float = 1e-4, kept: tuple[int, ...] = (1, 2), texts: int = 100) -> Candidate:
    return Candidate(
        shrink=ShrinkPlan(), kept=kept, rule="stitched", learning_rate=rate, texts=texts, loss=loss, seconds=1.0
    )


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ((0.50, 0.47, 0.46), 1e-4),  # a little better: a short training says little of the best rate of a long one
        ((0.50, 0.36, 0.52), 1e-3),
        ((0.50, 0.52, 0.36), 1e-5),
        ((0.50, 0.36, 0.20), 1e-5),
        ((0.50, 0.70, 0.90), 1e-4),
        ((0.97, 0.99, 0.96), None),  # nothing learned anything
    ],
)
def test_another_rate_has_to_be_clearly_better_than_the_usual_one(losses, best):
    usual, higher, lower = (candidate(loss, rate) for loss, rate in zip(losses, (1e-4, 1e-3, 1e-5), strict=True))
    assert Tournament(rates=(usual, higher, lower), constant_loss=1.0).learning_rate == best
    assert BETTER_RATE < AS_GOOD < 1
    assert Tournament(constant_loss=1.0).learning_rate is None, "none was tried"


@pytest.mark.slow
def test_without_any_learning_probes_decide(tried):
    found = Tournament.load(tried[0] / "tournament.json")
    hopeless = found.model_copy(update={"constant_loss": found.winner.loss})
    assert not hopeless.has_learned(hopeless.finals)
    assert hopeless.winner == found.finals[0]
    assert hopeless.winner.kept == found.rules[0].kept
    assert hopeless.learning_rate is None
    assert f"None of {len(found.rules)} choices of layers learned anything" in hopeless.summary()


# A tournament without models: what is trained, and for how long


class Track:
    """Stands for Evaluator and its Training: short trainings whose losses are made up."""

    def __init__(self, config: RunConfig, choices: Choices, loss, unit: int) -> None:
        self.config, self.training, self.choices, self.loss, self.unit = config, self, choices, loss, unit
        self.asked: list[tuple[ShrinkPlan, tuple[int, ...], int, float]] = []
        self.shrink = ShrinkPlan()

    def with_shrink(self, shrink):
        self.shrink = shrink
        return self

    def train_briefly(self, _name, kept, texts, rate):
        self.asked.append((self.shrink, kept, texts, rate))
        return ShortTraining(self.loss(kept, texts / self.unit, rate), 2.0, texts / 1000)


WIDE, NARROW = ShrinkPlan(rank=64), ShrinkPlan(rank=32)
CHOSEN = {"stitched": (1, 2, 3), "uniform_k": (1, 3, 5), "alternate": (2, 3, 4), "marginal": (4, 5, 6)}


def play(tmp_path, loss, shrinks=(WIDE, NARROW), chosen=None, propose=None, **recovery):
    """A tournament, what stands for the models, and a way to resume it.

    Wide embeddings leave room for one layer, narrow ones for three.
    """
    chosen = chosen or CHOSEN
    situation = Situation(768, 1.0, 3000, 60_000, 30.0)
    config = RunConfig.model_validate(
        {"model": {"source": "m"}, "task": {"train": "t"}, "selection": {"k": 3}, "recovery": recovery}
    )
    choices = choose_recipe(config.recovery, situation)

    def wide_or_narrow(rule, _evidence, shrink):
        return chosen[rule][: 1 if shrink == WIDE else 3] if rule in chosen else None

    bench: Any = SimpleNamespace(
        follows=False, config=config, situation=situation, chosen_recipe=choices, propose=propose or wide_or_narrow
    )
    track: Any = Track(config, choices, loss, texts_per_candidate(bench))

    def again() -> Tournament:
        return run_tournament(bench, track, shrinks, Evidence([0.0] * 6), tmp_path / "tournament.json")

    return again(), track, again


def test_fast_learners_are_trained_longer(tmp_path):
    """Spread layers lead with few texts, low layers with many; speed does not decide the allocation."""

    def loss(kept, units, _rate):
        slow = len(kept) + (kept == (1, 2, 3))
        return 1 / slow if units > 1 else slow / 10

    found, track, again = play(tmp_path, loss, learning_rate=1e-4)
    assert (found.winner.kept, found.winner.shrink) == ((1, 2, 3), NARROW)
    assert min(found.rules, key=lambda one: one.loss).kept != (1, 2, 3)
    assert found.rates == (), "the user gave one"
    assert len(track.asked) == len(set(track.asked)) == 2 + 4 + 1, "nothing twice"
    assert {rate for *_, rate in track.asked} == {1e-4}
    assert (again(), len(track.asked)) == (found, 7)


def test_where_nothing_learns_allocations_are_trained_for_longer_instead_of_rules(tmp_path):
    found, track, _ = play(tmp_path, lambda kept, *_: 1.99 - 0.01 * len(kept), learning_rate=1e-4)
    assert [one.texts for one in found.slow] == [FULL.longer["slow"] * track.unit] * 2
    assert found.rules == ()
    assert found.finals == (found.slow[0],), "the first is the probes' choice"
    assert found.winner.shrink == WIDE
    assert len(track.asked) == 2 + 2
    assert "None of 2 ways to share the budget out learned anything" in found.summary()


def test_slow_learners_choose_the_allocation(tmp_path):
    found, track, _ = play(tmp_path, lambda kept, units, _: 1.0 / len(kept) if units > 5 else 2.0)
    assert len(found.slow) == 2
    assert found.winner.shrink == NARROW
    assert found.rules == ()
    assert len(track.asked) == 3 + 2 + 2
    assert found.learning_rate is None, "rates were compared in too short a time"
    assert {rate for *_, rate in track.asked[3:]} == {track.choices.learning_rate}


@pytest.mark.parametrize("best", FULL.rates)
def test_what_was_trained_in_one_round_is_not_trained_in_the_next(tmp_path, best):
    """With the best rate and allocation of the first round, the probes' choice is known already."""

    def loss(kept, _units, rate):
        return 0.5 + abs(rate / 1e-4 - best) + 0.1 * len(kept)

    found, track, _ = play(tmp_path, loss)
    assert track.choices.learning_rate == 1e-4
    assert found.learning_rate == pytest.approx(best * 1e-4)
    assert found.winner.shrink == WIDE
    same = [one for one in found.rates if one.learning_rate == found.learning_rate]
    assert [found.rules[0]] == same
    assert len(track.asked) == len(set(track.asked)) == 3 + 2 + (len(found.rules) - 1) + FULL.finalists
    assert sum(texts for *_, texts, _ in track.asked) == track.unit * (
        3 + 2 * FULL.longer["allocations"] + (len(found.rules) - 1) + FULL.finalists * FULL.longer["finals"]
    )
    assert found.seconds == pytest.approx(sum(texts for *_, texts, _ in track.asked) / 1000, abs=1)


@pytest.mark.parametrize(
    ("texts", "compared"),
    [
        (60_000, [3, 4, 5]),  # a long training: rather narrower than fewer
        (10_000, [3, 2, 1]),
    ],
)
def test_allocations_near_the_probes_choice_are_compared(tmp_path, texts, compared):
    ways = {count: ShrinkPlan(rank=100 - count) for count in (3, 1, 2, 4, 5, 6)}  # probes choose three layers
    bench_of = {way: tuple(range(1, count + 1)) for count, way in ways.items()}
    found, *_ = play(
        tmp_path, lambda *_: 0.5, tuple(ways.values()), propose=lambda _rule, _evidence, way: bench_of[way],
        learning_rate=1e-4, epochs=1, texts=texts,
    )  # fmt: skip
    assert [len(one.kept) for one in found.allocations] == compared


@pytest.mark.parametrize(
    ("texts", "losses", "chosen"),
    [
        (60_000, {3: 0.50, 4: 0.51, 5: 0.54}, 5),  # about as good
        (60_000, {3: 0.50, 4: 0.51, 5: 0.60}, 4),
        (60_000, {3: 0.50, 4: 0.60, 5: 0.60}, 3),
        (60_000, {3: 0.60, 4: 0.50, 5: 0.60}, 4),
        (10_000, {3: 0.51, 2: 0.50, 1: 0.52}, 2),  # a short training: what learns fastest
    ],
)
def test_before_a_long_training_more_layers_win_where_they_are_about_as_good(tmp_path, texts, losses, chosen):
    ways = {ShrinkPlan(rank=100 - count): tuple(range(1, count + 1)) for count in losses}
    found, *_ = play(
        tmp_path, lambda kept, *_: losses[len(kept)], tuple(ways), propose=lambda _rule, _evidence, way: ways[way],
        learning_rate=1e-4, epochs=1, texts=texts,
    )  # fmt: skip
    assert len(found.winner.kept) == chosen
    fastest = min(losses, key=lambda count: losses[count])
    assert (f"{chosen} layers were about as good and are kept" in found.summary()) == (chosen != fastest)


def diverges(_kept, _units, rate):
    if rate > 2e-4:
        raise Diverged("the loss is nan", rate=1e-3)
    return 0.5


def test_a_rate_of_ours_that_diverges_does_not_end_the_run(tmp_path):
    found, _, again = play(tmp_path, diverges)
    assert found.learning_rate == 1e-4
    assert max(one.loss for one in found.rates) > 1000
    assert again() == found


def test_a_rate_of_the_user_that_diverges_is_refused(tmp_path):
    with pytest.raises(UserError, match="the loss is nan"):
        play(tmp_path, diverges, learning_rate=1e-3)


def test_before_a_short_training_allocations_and_two_rules_are_compared(tmp_path):
    """Nothing is trained twice: three short trainings, all of the same length and rate."""
    found, track, again = play(
        tmp_path, lambda kept, *_: 0.5 + 0.1 * len(kept) - 0.3 * (2 in kept), epochs=1, texts=10_000
    )
    assert [(shrink, kept) for shrink, kept, *_ in track.asked] == [
        (WIDE, (1,)),
        (NARROW, (1, 2, 3)),
        (NARROW, (1, 3, 5)),
    ]
    assert {texts for *_, texts, _ in track.asked} == {SMALL.texts(10_000)}
    assert found.rates == ()
    assert found.learning_rate is None, "the usual one"
    assert (found.winner.shrink, found.winner.kept) == (NARROW, (1, 2, 3))
    assert (again(), len(track.asked)) == (found, 3)


# The cost: all rounds together read fewer texts than the final training


def texts_of_all_rounds(size: TournamentSize, unit: int, inputs: int) -> int:
    """The most that is read: every rate, allocation, rule and finalist is another training.

    A short training learns from what is not held out; it repeats these texts as often as comes nearest.
    """
    used = inputs - max(round(FROM_SHORT_TRAININGS[0] * inputs), 1)

    def read(texts: int) -> int:
        return min(texts, used) * max(round(texts / min(texts, used)), 1)

    if size is SMALL:  # the first rule is that of the allocations, and finals are the same trainings again
        return (size.allocations + size.rules - 1) * read(unit)
    rates, times = len(size.rates) * read(unit), size.longer
    usual = rates + size.allocations * read(times["allocations"] * unit) + len(RULES) * read(unit)
    usual += size.finalists * read(times["finals"] * unit)  # the probes' choice is one of the allocations
    slow = rates + size.allocations * (read(times["allocations"] * unit) + read(times["slow"] * unit))
    return max(usual, slow)


@settings(max_examples=400, deadline=None)
@given(
    labelled=st.integers(20, 500_000),
    unlabelled=st.integers(0, 500_000),
    tokens=st.floats(4, 512),
    effort=st.floats(0.05, 3.0),
    recovery=st.fixed_dictionaries(
        {},
        optional={
            "epochs": st.integers(0, 60),
            "texts": st.integers(1, 1_000_000),
            "augment": st.integers(0, 20),
            "batch_size": st.sampled_from([8, 32, 256]),
            "distil": st.booleans(),
        },
    ),
)
def test_the_tournament_reads_fewer_texts_than_the_final_training(labelled, unlabelled, tokens, effort, recovery):
    config, situation = RecoveryConfig(**recovery), Situation(768, 1.0, labelled, unlabelled, tokens)
    choices = choose_recipe(config, situation, effort)
    read = count_read(config, situation, choices)
    selection = SimpleNamespace(trial=None)
    bench: Any = SimpleNamespace(
        follows=False,
        config=SimpleNamespace(recovery=config, selection=selection),
        situation=situation,
        chosen_recipe=choices,
        strategy=STRATEGIES["tried"],
    )
    size = choose_size(bench, read)
    assert has_tournament(bench, read) == (size is not None)
    if size:
        inputs = count_available(config, situation, choices.augment)
        if choices.texts is not None:  # no others are answered by the teacher
            inputs = min(inputs, max(choices.texts, labelled + 1))
        assert texts_of_all_rounds(size, texts_per_candidate(bench), inputs) < read
    else:
        assert read < 8_000


@pytest.mark.slow
@pytest.mark.long
def test_where_little_is_trained_probes_choose(cli, model_folder, task_files, tmp_path):
    raw = raw_config(model_folder, task_files, trial=None) | {"compare": []}
    (tmp_path / "config.yaml").write_text(json.dumps(raw))
    done = cli("run", tmp_path / "config.yaml", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "probes choose the layers (stitched)" in " ".join(done.err.split())
    assert RunResult.load(tmp_path / "out" / "metrics.json").strategy == "stitched"
    assert load_config(tmp_path / "out" / "config.yaml").selection.strategy == "stitched"
    assert not (tmp_path / "out" / "tournament.json").exists()


# What a run makes of it


@pytest.mark.slow
def test_reports_give_the_reason_for_the_selection(tried):
    out, _ = tried
    chosen, said = Selection.load(out / "selection.json"), Tournament.load(out / "tournament.json").summary()
    assert (chosen.strategy, chosen.reason, chosen.certainty) == ("tried", said, None)
    for page in ("report.md", "model/README.md"):
        assert said in (out / page).read_text()
    page = (out / "report.html").read_text()
    assert "Why these layers" in page
    assert '"chosen":"tried"' in page.replace('": ', '":')
    assert f'"name":"tried","choices":[{{"k":{chosen.k}' in page.replace('": ', '":').replace(", ", ",")


@pytest.mark.long
def test_finished_trainings_are_not_repeated(model_folder, task_files, tmp_path, tried, monkeypatch):
    config = check(raw_config(model_folder, task_files))
    real, done = Training.train_briefly, []

    def stop_after_two(self, *given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(given)
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "train_briefly", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(config, tmp_path / "out")
    after = []
    monkeypatch.setattr(Training, "train_briefly", lambda self, *given: after.append(given) or real(self, *given))
    pipeline.run(config, tmp_path / "out")
    whole = Tournament.load(tried[0] / "tournament.json")
    trained = {(str(one.shrink), one.kept, one.texts, one.learning_rate) for one in whole.every}
    assert len(after) == len(trained) - 2
    assert timeless(Tournament.load(tmp_path / "out" / "tournament.json")) == timeless(whole)


MEASURED_BY_CLOCK = {"milliseconds", "speedup", "spread", "seconds"}


def without_times(value):
    """A JSON value without what a clock measured, and without the command."""
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in {*MEASURED_BY_CLOCK, "command"}}
    return [without_times(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.long
def test_the_settings_of_a_finished_run_repeat_it(cli, tried, tmp_path):
    """Whatever was chosen is in config.yaml: the recipe, the learning rate, the length of short trainings."""
    out, _ = tried
    done = cli("run", out / "config.yaml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    settled = load_config(out / "config.yaml")
    assert settled.time is None
    assert "auto" not in (settled.recovery.epochs, settled.recovery.learning_rate, settled.recovery.batch_size)
    assert settled.selection.trial == TEXTS
    for name in ("metrics.json", "selection.json"):
        first, second = (json.loads((folder / name).read_text()) for folder in (out, tmp_path / "again"))
        assert without_times(first) == without_times(second)
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (out, tmp_path / "again")]
    assert weights[0] == weights[1]
    assert load_config(tmp_path / "again" / "config.yaml") == settled


@pytest.mark.long
def test_a_tournament_is_for_runs_alone(cli, model_folder, task_files, tmp_path, tried):
    raw = raw_config(model_folder, task_files)
    with pytest.raises(Problems, match="in common"):
        check(raw | {"compare": ["tried"], "selection": {"k": 2}})
    untrained = raw | {"recovery": {"epochs": 0}, "compare": [], "time": None}
    smallest(check(untrained), 0.9, tmp_path / "small")
    assert Selection.load(tmp_path / "small" / "selection.json").strategy == "stitched", "it would play one per size"
    assert not (tmp_path / "small" / "tournament.json").exists()
    found = cli("select", str(tried[0] / "scores.json"), "--strategy", "tried", "--k", "2")
    assert found.code == 2
    assert "only `probescale run` does" in found.err
