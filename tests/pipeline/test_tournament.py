"""Runs that try candidates before they choose one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from probescale.errors import Problems, UserError
from probescale.models.shrink.shrinker import ShrinkPlan
from probescale.pipeline import run as pipeline
from probescale.pipeline.evaluation import Measurer
from probescale.pipeline.smallest import smallest
from probescale.pipeline.tournament import Attempts, _enough, try_out
from probescale.pipeline.validate import check
from probescale.selection.result import Selection

pytestmark = pytest.mark.slow


def raw_config(model_folder, task_files, **selection):
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"strategy": "tried", "budget": "45%", "trial": 600, **selection},
        "shrink": "auto",
        "compare": ["top_k"],
        "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 8},
    }


@pytest.fixture(scope="module")
def tried(model_folder, task_files, tmp_path_factory):
    out = tmp_path_factory.mktemp("tried") / "out"
    return out, pipeline.run(check(raw_config(model_folder, task_files)), out)


def test_the_candidate_that_learns_most_is_kept(tried):
    out, result = tried
    trials = Attempts.load(out / "trials.json")
    assert trials.best.loss == min(one.loss for one in trials.finals) < trials.nothing
    assert trials.finals[0] == trials.rules[0], "what probes propose; as many texts as in the round before"
    for attempts in (trials.splits, trials.rules, trials.finals):
        assert trials.clear(attempts)
        assert len({(str(one.shrink), one.kept) for one in attempts}) == len(attempts) > 1
    assert {str(one.shrink) for one in trials.rules} == {str(trials.best_of(trials.splits).shrink)}
    assert {one.texts for one in trials.rules} == {600}
    assert {one.texts for one in trials.splits} == {600}, "no more than the recipe itself reads"
    assert result.subnetwork.kept == trials.best.kept
    assert result.subnetwork.params <= 0.45 * result.original.params
    split = f"; subnetworks with {trials.best.shrink}" if trials.best.shrink else ""
    assert result.recipe.endswith(f"seed 0{split}"), "models that are compared have the same split"


def test_where_nobody_learns_anything_probes_decide(tried):
    found = Attempts.load(tried[0] / "trials.json")
    hopeless = found.model_copy(update={"nothing": found.best.loss})
    assert not hopeless.clear(hopeless.finals)
    assert hopeless.best == found.rules[0]
    assert f"None of {len(found.rules)} choices of layers learnt anything" in hopeless.sentence()


def test_who_learns_fast_is_tried_for_longer(tmp_path):
    """With few texts spread layers lead, with many the low ones; and the split is not chosen by who is fast."""
    asked: list[tuple[int, ...]] = []

    def attempt(_name, kept, texts):
        asked.append((*kept, texts))
        slow = len(kept) + (kept == (1, 2, 3))
        return (1 / slow if texts > 5000 else slow / 10), 2.0

    config = SimpleNamespace(selection=SimpleNamespace(trial=5000), recovery=SimpleNamespace(epochs=2))
    measurer = SimpleNamespace(config=config, task=SimpleNamespace(train=range(9000)), unlabelled=None)
    measurer.made_smaller = lambda _shrink: SimpleNamespace(attempt=attempt)
    wide, narrow = ShrinkPlan(rank=64), ShrinkPlan(rank=32)
    chosen = {"stitched": (1, 2, 3), "uniform_k": (1, 3, 5), "alternate": (2, 3, 4), "marginal": (4, 5, 6)}

    def propose(shrink, rule):
        return chosen[rule][: 3 if shrink == narrow else 1] if rule in chosen else None

    found = try_out(tmp_path / "trials.json", measurer, [wide, narrow], propose)  # type: ignore[arg-type]
    assert (found.best.kept, found.best.shrink) == ((1, 2, 3), narrow)
    assert min(found.rules, key=lambda one: one.loss).kept != (1, 2, 3)
    assert len(asked) == len(set(asked)) == 2 + 4 + 2, "nothing twice"
    again = try_out(tmp_path / "trials.json", measurer, [wide, narrow], propose)  # type: ignore[arg-type]
    assert (again, len(asked)) == (found, 8)


def test_splits_are_tried_for_longer_than_rules(model_folder, task_files, tmp_path):
    config = check(raw_config(model_folder, task_files, trial=None))
    measurer = SimpleNamespace(config=config, task=SimpleNamespace(train=range(3000)), unlabelled=range(60_000))
    assert _enough(measurer) == (6300, 18_900)  # type: ignore[arg-type]


def test_it_says_why(tried):
    out, _ = tried
    chosen, said = Selection.load(out / "selection.json"), Attempts.load(out / "trials.json").sentence()
    assert (chosen.strategy, chosen.reason, chosen.certainty) == ("tried", said, None)
    for page in ("report.md", "model/README.md"):
        assert said in (out / page).read_text()
    page = (out / "report.html").read_text()
    assert "Why these layers" in page
    assert '"chosen":"tried"' in page.replace('": ', '":')
    assert f'"name":"tried","choices":[{{"k":{chosen.k}' in page.replace('": ', '":').replace(", ", ",")


def test_what_was_tried_is_not_trained_again(model_folder, task_files, tmp_path, tried, monkeypatch):
    config = check(raw_config(model_folder, task_files))
    real, done = Measurer.attempt, []

    def stop_after_two(self, *given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(given)
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Measurer, "attempt", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(config, tmp_path / "out")
    after = []
    monkeypatch.setattr(Measurer, "attempt", lambda self, *given: after.append(given) or real(self, *given))
    pipeline.run(config, tmp_path / "out")
    whole = Attempts.load(tried[0] / "trials.json")
    trained = {(str(one.shrink), one.kept) for one in (*whole.splits, *whole.rules, *whole.finals)}
    assert len(after) == len(trained) - 2
    assert Attempts.load(tmp_path / "out" / "trials.json") == whole


def test_where_it_does_not_go(cli, model_folder, task_files, tmp_path, tried):
    raw = raw_config(model_folder, task_files)
    with pytest.raises(Problems, match="in common"):
        check(raw | {"compare": ["tried"], "selection": {"k": 2}})
    with pytest.raises(UserError, match="all of them"):
        smallest(check(raw | {"shrink": {}}), 0.9, tmp_path / "small")
    found = cli("select", str(tried[0] / "scores.json"), "--strategy", "tried", "--k", "2")
    assert found.code == 2
    assert "only a run makes" in found.err
