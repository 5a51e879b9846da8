"""One run, all rungs: every size is a proved model that is evaluated, saved, opened and resumed like any other."""

from __future__ import annotations

import json
import signal

import pytest
from ruamel.yaml import YAML
from transformers import AutoModelForSequenceClassification

import probescale
from helpers.findings import evaluated
from probescale.deploy.compressed import Compressed
from probescale.deploy.model_folder import find_model_folder, list_models
from probescale.deploy.run_data import load_run_data
from probescale.errors import Problems, UserError
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.speed import SpeedSpread
from probescale.pipeline import training
from probescale.pipeline.sources import SavedRung, SourceChoice, find_nested
from probescale.pipeline.tournament import RULES, Candidate, Lessons, Tournament
from probescale.pipeline.validate import check, load_config
from probescale.recovery.ladder import LadderResult, LadderRung, choose_answer
from probescale.report.ladder import list_wishes
from probescale.selection.ladder import parse_ladder
from probescale.selection.structure import Structure


def settings(model_folder, task_files, **selection) -> dict:
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"ladder": ["3x", "1.5x"], "strategy": "stitched", **selection},
        "shrink": {"vocabulary": "all"},
        "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "dropout": 0, "augment": 0},
        "seed": 3,
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory, model_folder, task_files):
    path = tmp_path_factory.mktemp("ladder") / "config.yaml"
    YAML().dump(settings(model_folder, task_files), path)
    return path


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    probescale.run(config, out)
    return out


# The sizes


@pytest.mark.parametrize(
    ("ladder", "words"),
    [
        (["2x", "many"], '"many" is not a budget'),
        (["2x", "10M"], "different units"),
        (["2x", "20ms"], "different units"),
        (["2x", "50%"], "one size twice"),
    ],
)
def test_what_is_no_ladder_is_refused(ladder, words):
    with pytest.raises(UserError, match=words) as refused:
        parse_ladder(ladder)
    assert refused.value.field == "selection.ladder"


def test_a_ladder_stands_alone(model_folder, task_files):
    raw = settings(model_folder, task_files, budget="5x")
    with pytest.raises(Problems, match="leave budget and k out"):
        check(raw)
    with pytest.raises(Problems, match="a ladder compares sizes"):
        check(settings(model_folder, task_files) | {"compare": ["top_k"]})
    with pytest.raises(Problems, match="1000x"):
        check(settings(model_folder, task_files, ladder=["2x", "1000x"]))


# What one rung learns from the one above


def candidate(rule: str, loss: float, kept=(1, 2), rate: float = 1e-4) -> Candidate:
    plan = ShrinkPlan(rank=8 * len(kept))
    return Candidate(shrink=plan, kept=kept, rule=rule, learning_rate=rate, texts=10, loss=loss, seconds=1.0)


def test_a_tournament_teaches_the_next_rung():
    found = Tournament(
        rates=(candidate("stitched", 0.5), candidate("stitched", 0.2, rate=2e-4)),
        allocations=(candidate("stitched", 0.4), candidate("stitched", 0.3, kept=(1,))),
        rules=(candidate("stitched", 0.4), candidate("uniform_k", 0.3), candidate("bottom_k", 0.2)),
        finals=(candidate("bottom_k", 0.2, kept=(1,)),),
        constant_loss=1.0,
    )
    lessons = found.teach(Lessons())
    assert lessons.rate == 2
    assert lessons.rules[:3] == ("stitched", "bottom_k", "uniform_k"), "the probes' choice, then the best"
    assert set(lessons.rules) == set(RULES), "no rule is lost for smaller rungs"
    assert not lessons.narrower_first
    below = Tournament(rules=(candidate("stitched", 0.1),), finals=(candidate("stitched", 0.1),), constant_loss=1.0)
    assert below.teach(lessons) == lessons, "what is not tried again is taken over"


def test_layers_of_the_rung_above_are_the_nearest(tmp_path):
    above = SavedRung("2x", tmp_path, (1, 4, 8, 12), ShrinkPlan(rank=64))
    assert find_nested((1, 8), ShrinkPlan(rank=32), above, Structure()) == (1, 8)
    assert find_nested((2, 5, 11), ShrinkPlan(rank=64), above, Structure()) == (1, 4, 12)
    assert find_nested((1, 8), ShrinkPlan(rank=96), above, Structure()) is None, "embeddings would have to grow"
    assert find_nested((1, 8), ShrinkPlan(), above, Structure()) is None
    assert find_nested((7, 8), ShrinkPlan(rank=32), above, Structure(contiguous=True)) is None


# Which one to take


def rung(name: str, retention: float, *, failure: str = "", size: float = 10.0) -> LadderRung:
    spread = SpeedSpread(low=1.0, high=2.0, waited=0.0)
    changes = {"retention": retention, "failure": failure, "megabytes": size, "milliseconds": size}
    model = evaluated((1, 2), 0.9 * retention, 2.0, spread, **changes)
    return LadderRung(
        name=name,
        folder=f"models/{name}",
        source="original",
        model=model,
        retention_interval=None if failure else (retention - 0.01, retention + 0.01),
    )


def test_a_dead_rung_is_never_sold():
    rungs = (rung("2x", 0.99, size=40), rung("5x", 0.97, size=16), rung("10x", 0.99, failure="it is dead", size=8))
    assert choose_answer(rungs) == "5x", "the smallest that surely keeps 95 %"
    assert choose_answer(rungs, 0.999) == "2x", "the largest, where none does"
    assert choose_answer(rungs[2:]) == ""
    ladder = LadderResult(rungs=rungs, original=rungs[0].model, answer="5x")
    wishes = {wish.wish: wish.rung for wish in list_wishes(ladder)}
    assert wishes["keep at least 98 %"] == "2x"
    assert wishes["keep at least 95 %"] == "5x"
    assert wishes["keep at least 99 %"] == ""
    assert wishes["at most 20 MB"] == "5x"
    assert wishes["at most 20 ms per batch"] == "5x"
    assert "10x" not in wishes.values()


def test_a_dead_rung_is_not_opened(tmp_path):
    rungs = (rung("2x", 0.99), rung("10x", 0.5, failure="it is dead"))
    LadderResult(rungs=rungs, original=rungs[0].model, answer="2x").save(tmp_path / "ladder.json")
    assert find_model_folder(tmp_path) == find_model_folder(tmp_path, "2X") == tmp_path / "models" / "2x"
    assert list_models(str(tmp_path)) == [str(tmp_path / "models" / "2x")]
    with pytest.raises(UserError, match="10x did not learn the task"):
        find_model_folder(tmp_path, "10x")
    with pytest.raises(UserError, match='"7x" is no rung'):
        find_model_folder(tmp_path, "7x")


# A whole ladder


@pytest.mark.slow
def test_every_rung_is_a_model_like_any_other(cli, folder):
    ladder = LadderResult.load(folder / "ladder.json")
    assert [one.name for one in ladder.rungs] == ["1.5x", "3x"], "the largest first"
    small = Compressed(folder)
    assert small.rungs == tuple(one.name for one in ladder.alive)
    for one in ladder.alive:
        model = AutoModelForSequenceClassification.from_pretrained(folder / one.folder)
        assert model.num_parameters() == one.model.params <= ladder.original.params / float(one.name[:-1])
        assert "proof" in json.loads((folder / one.folder / "probescale.json").read_text())
        own = small.rung(one.name)
        assert own.params == one.model.params
        assert load_run_data(folder / one.folder, ("negative", "positive")).recorded == own.result.subnetwork.value
        assert own.predict(["good"]) == probescale.predict(folder / one.folder, ["good"])
    report = (folder / "report.md").read_text()
    assert "Which one to take" in report
    assert f'model="models/{ladder.answer}"' in report
    assert not (folder / "model").exists()
    assert load_config(folder / "config.yaml").selection.ladder == ("1.5x", "3x")
    assert (folder / ladder.rungs[0].folder / "README.md").is_file()
    refused = cli("predict", folder, "--rung", "9x")
    assert refused.code == 2
    assert "its rungs are 1.5x, 3x" in refused.err


@pytest.mark.slow
def test_the_source_of_a_rung_is_chosen_by_texts_that_no_rung_has_learned_from(folder):
    choice = SourceChoice.load(folder / "rungs" / "3x" / "source.json")
    assert [source.name for source in choice.sources] == ["original", "1.5x"]
    assert LadderResult.load(folder / "ladder.json").rungs[1].source == choice.winner.name
    assert choice.winner.loss == min(source.loss for source in choice.sources)


@pytest.mark.long
def test_a_stopped_ladder_resumes_to_the_same_models(config, folder, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore the signal
    begun, fine_tune = [], training.fine_tune

    def stop(*args, **kwargs):
        begun.append(kwargs["title"])
        if len(begun) == 3:  # the original, 1.5x, 3x
            signal.raise_signal(signal.SIGINT)
        return fine_tune(*args, **kwargs)

    monkeypatch.setattr(training, "fine_tune", stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            probescale.run(config, tmp_path / "out")
        probescale.run(config, tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun.count("fine-tuning: original") == begun.count("fine-tuning: 1.5x") == 1, "nothing is trained twice"
    for name in ("1.5x", "3x"):
        ours, theirs = (place / "models" / name / "model.safetensors" for place in (tmp_path / "out", folder))
        assert ours.read_bytes() == theirs.read_bytes()
