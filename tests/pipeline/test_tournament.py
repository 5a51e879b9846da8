"""Runs that train candidates for a short while before they select one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from probescale.errors import Problems, UserError
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline import run as pipeline
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.smallest import smallest
from probescale.pipeline.tournament import Tournament, _texts_per_candidate, run_tournament
from probescale.pipeline.validate import check
from probescale.selection.evidence import Evidence
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
    trials = Tournament.load(out / "tournament.json")
    assert trials.winner.loss == min(one.loss for one in trials.finals) < trials.constant_loss
    assert trials.finals[0] == trials.rules[0], "what probes propose; as many texts as in the round before"
    for attempts in (trials.allocations, trials.rules, trials.finals):
        assert trials.has_learned(attempts)
        assert len({(str(one.shrink), one.kept) for one in attempts}) == len(attempts) > 1
    assert {str(one.shrink) for one in trials.rules} == {str(trials.rank(trials.allocations)[0].shrink)}
    assert {one.texts for one in trials.rules} == {600}
    assert {one.texts for one in trials.allocations} == {600}, "no more than the recipe itself reads"
    assert result.subnetwork.kept == trials.winner.kept
    assert result.subnetwork.params <= 0.45 * result.original.params
    split = f"; subnetworks with {trials.winner.shrink}" if trials.winner.shrink else ""
    assert result.recipe.endswith(f"seed 0{split}"), "models that are compared have the same split"


def test_without_any_learning_probes_decide(tried):
    found = Tournament.load(tried[0] / "tournament.json")
    hopeless = found.model_copy(update={"constant_loss": found.winner.loss})
    assert not hopeless.has_learned(hopeless.finals)
    assert hopeless.winner == found.rules[0]
    assert f"None of {len(found.rules)} choices of layers learned anything" in hopeless.summary()


def test_fast_learners_are_trained_longer(tmp_path):
    """Spread layers lead with few texts, low layers with many; speed does not decide the allocation."""
    asked: list[tuple[int, ...]] = []

    def train_briefly(_name, kept, texts):
        asked.append((*kept, texts))
        slow = len(kept) + (kept == (1, 2, 3))
        return (1 / slow if texts > 5000 else slow / 10), 2.0

    config = SimpleNamespace(selection=SimpleNamespace(trial=5000), recovery=SimpleNamespace(epochs=2))
    evaluator = SimpleNamespace(config=config, task=SimpleNamespace(train=range(9000)), unlabelled=None)
    evaluator.with_shrink = lambda _shrink: SimpleNamespace(train_briefly=train_briefly)
    wide, narrow = ShrinkPlan(rank=64), ShrinkPlan(rank=32)
    chosen = {"stitched": (1, 2, 3), "uniform_k": (1, 3, 5), "alternate": (2, 3, 4), "marginal": (4, 5, 6)}

    def propose(rule, _evidence, shrink):
        return chosen[rule][: 3 if shrink == narrow else 1] if rule in chosen else None

    bench, evidence = SimpleNamespace(propose=propose), Evidence([0.0] * 6)
    found = run_tournament(bench, evaluator, [wide, narrow], evidence, tmp_path / "tournament.json")  # type: ignore[arg-type]
    assert (found.winner.kept, found.winner.shrink) == ((1, 2, 3), narrow)
    assert min(found.rules, key=lambda one: one.loss).kept != (1, 2, 3)
    assert len(asked) == len(set(asked)) == 2 + 4 + 2, "nothing twice"
    again = run_tournament(bench, evaluator, [wide, narrow], evidence, tmp_path / "tournament.json")  # type: ignore[arg-type]
    assert (again, len(asked)) == (found, 8)


def test_allocations_are_trained_longer_than_rules(model_folder, task_files, tmp_path):
    config = check(raw_config(model_folder, task_files, trial=None))
    evaluator = SimpleNamespace(config=config, task=SimpleNamespace(train=range(3000)), unlabelled=range(60_000))
    assert _texts_per_candidate(evaluator) == (6300, 18_900)  # type: ignore[arg-type]


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


def test_finished_trainings_are_not_repeated(model_folder, task_files, tmp_path, tried, monkeypatch):
    config = check(raw_config(model_folder, task_files))
    real, done = Evaluator.train_briefly, []

    def stop_after_two(self, *given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(given)
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "train_briefly", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(config, tmp_path / "out")
    after = []
    monkeypatch.setattr(Evaluator, "train_briefly", lambda self, *given: after.append(given) or real(self, *given))
    pipeline.run(config, tmp_path / "out")
    whole = Tournament.load(tried[0] / "tournament.json")
    trained = {(str(one.shrink), one.kept) for one in (*whole.allocations, *whole.rules, *whole.finals)}
    assert len(after) == len(trained) - 2
    assert Tournament.load(tmp_path / "out" / "tournament.json") == whole


def test_a_tournament_is_refused_outside_a_run(cli, model_folder, task_files, tmp_path, tried):
    raw = raw_config(model_folder, task_files)
    with pytest.raises(Problems, match="in common"):
        check(raw | {"compare": ["tried"], "selection": {"k": 2}})
    with pytest.raises(UserError, match="all sizes"):
        smallest(check(raw | {"shrink": {}}), 0.9, tmp_path / "small")
    found = cli("select", str(tried[0] / "scores.json"), "--strategy", "tried", "--k", "2")
    assert found.code == 2
    assert "only `probescale run` does" in found.err
