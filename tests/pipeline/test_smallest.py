"""The smallest model that keeps a share of the metric: measured, bracketed, saved, resumed after a stop."""

from __future__ import annotations

import json
import signal

import pytest
from ruamel.yaml import YAML
from transformers import AutoModelForSequenceClassification

from helpers.models import LAYERS
from probescale.errors import UserError
from probescale.pipeline import evaluation
from probescale.pipeline.smallest import parse_share
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.report.tables import search_notes
from probescale.selection.bracket import max_evaluations

MOST_TRIALS = max_evaluations(LAYERS - 1) + 1


@pytest.fixture(scope="module")
def config(tmp_path_factory, model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},  # of so few rows, accuracies may all be equal
        "selection": {"k": 2, "strategy": "best_scores"},
        "recovery": {"epochs": 2, "learning_rate": 3e-3, "batch_size": 16},
        "seed": 3,
    }
    path = tmp_path_factory.mktemp("smallest") / "config.yaml"
    YAML().dump(raw, path)
    return path


def read(folder):
    return json.loads((folder / "smallest.json").read_text())


def check_search(search):
    """Assert what holds for every search."""
    original, *others = search["trials"]
    assert original["kept"] == list(range(1, LAYERS + 1))
    assert original["expected"] is None
    assert original["enough"]
    assert search["wanted"] == pytest.approx(search["keep"] * original["value"])
    assert len(search["trials"]) <= MOST_TRIALS
    kept = [tuple(trial["kept"]) for trial in search["trials"]]
    assert len(set(kept)) == len(kept)
    for trial in search["trials"]:
        assert trial["enough"] == (trial["value"] >= search["wanted"])
        assert trial["retention"] == pytest.approx(trial["value"] / original["value"])
    assert all(trial["expected"] is not None for trial in others)
    enough = [trial["kept"] for trial in search["trials"] if trial["enough"]]
    assert search["answer"] == min(enough, key=len), (
        "the answer was measured, and no smaller one that was measured does"
    )
    below = [trial["enough"] for trial in others if len(trial["kept"]) == len(search["answer"]) - 1]
    assert search["bracketed"]
    assert below == ([] if len(search["answer"]) == 1 else [False])


@pytest.fixture
def stop_at(monkeypatch):
    """Interrupt the training with this number once; give the list of all started trainings."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore the signal

    def patch(number, *, train=True):
        begun = []
        fine_tune = evaluation.fine_tune

        def stop(*args, **kwargs):
            begun.append(kwargs["title"])
            if len(begun) == number:
                signal.raise_signal(signal.SIGINT)
            if train:
                return fine_tune(*args, **kwargs)
            args[0].model.classifier.weight.data.zero_()  # one answer to all
            return ()

        monkeypatch.setattr(evaluation, "fine_tune", stop)
        return begun

    yield patch
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_stopped_search_resumes_to_a_measured_answer(cli, config, tmp_path, stop_at):
    begun = stop_at(2)
    options = ["smallest", config, "--keep", "90%", "--out", tmp_path / "out"]
    stopped = cli(*options)
    assert stopped.code == 130
    assert "run the same command to resume" in stopped.err
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    found = cli(*options)
    assert found.code == 0, found.err
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    search = read(tmp_path / "out")
    check_search(search)
    assert search["keep"] == 0.9
    assert begun.count("fine-tuning: original") == 1, "what was finished is not trained again"
    assert begun[1] == begun[2], "the one that was stopped is"
    assert len(begun) == len(search["trials"]) + 1

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert model.config.num_hidden_layers == len(search["answer"])
    record = json.loads((tmp_path / "out" / "model" / "probescale.json").read_text())
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert record["kept"] == selection["kept"] == metrics["subnetwork"]["kept"] == search["answer"]
    assert metrics["subnetwork"]["value"] >= 0.9 * metrics["original"]["value"]
    assert {"scores.json", "config.yaml", "report.md"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert "chosen on the dev set" in (tmp_path / "out" / "report.md").read_text()
    assert "enough" in found.out


@pytest.mark.slow
def test_keeping_100_percent_may_need_the_original(cli, config, tmp_path, monkeypatch):
    """Only the original is trained here, so that every smaller model is worse."""
    fine_tune = evaluation.fine_tune

    def only_the_original(*args, **kwargs):
        return fine_tune(*args, **kwargs) if kwargs["title"] == "fine-tuning: original" else ()

    monkeypatch.setattr(evaluation, "fine_tune", only_the_original)
    options = ["--keep", "100%", "--out", tmp_path / "out", "--set", "recovery.epochs=6"]
    options += ["--set", "recovery.start=pretrained"]
    found = cli("smallest", config, *options)
    assert found.code == 0, found.err
    search = read(tmp_path / "out")
    check_search(search)
    assert search["answer"] == [1, 2, 3, 4]
    assert "No smaller subnetwork keeps 100.0%" in found.out
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert model.config.num_hidden_layers == LAYERS


@pytest.mark.slow
def test_a_search_stopped_late_trains_nothing_again(cli, config, tmp_path, stop_at):
    """All sizes predict alike, so that each is enough and is saved in turn."""
    begun = stop_at(3, train=False)
    options = ["smallest", config, "--keep", "50%", "--out", tmp_path / "out"]
    assert cli(*options).code == 130
    assert cli(*options).code == 0
    assert len(begun) == len(read(tmp_path / "out")["trials"]) + 1
    assert begun.count("fine-tuning: original") == 1


@pytest.mark.slow
def test_a_gap_leaves_fewer_sizes_and_the_configured_budget_is_ignored(cli, config, tmp_path):
    options = ["--set", "selection.gap=2", "--set", "selection.k=9", "--set", "recovery.epochs=0"]
    found = cli("smallest", config, "--keep", "50%", "--out", tmp_path / "out", *options)
    assert found.code == 0, found.err
    assert all(len(trial["kept"]) in (1, 2, 4) for trial in read(tmp_path / "out")["trials"])


def test_a_search_with_a_metric_of_zero_is_reported():
    """A constant predictor has a Matthews correlation of 0: every model keeps any share of it."""
    trials = [
        SearchStep(kept=kept, params=10 * len(kept), expected=None, value=0.0, retention=None, enough=True)
        for kept in ((1, 2), (1,))
    ]
    search = SmallestSearch(keep=0.5, wanted=0.0, trials=tuple(trials), answer=(1,), bracketed=True)
    assert "50.0% of the parameters" in search_notes(search)[0]


@pytest.mark.parametrize("keep", ["0%", "101%", "abc", "97", "-5%", "nan", "", "%"])
def test_invalid_shares_are_refused(cli, config, tmp_path, keep):
    found = cli("smallest", config, f"--keep={keep}", "--out", tmp_path / "out")
    assert found.code == 2
    assert "--keep" in found.err
    assert "97%" in found.err
    assert "Traceback" not in found.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "share"), [("97%", 0.97), ("97 %", 0.97), ("0.97", 0.97), ("100%", 1.0), ("1", 1.0)])
def test_shares_are_parsed(text, share):
    assert parse_share(text) == share


def test_an_infinite_share_is_refused():
    with pytest.raises(UserError, match="is not a share"):
        parse_share("inf")


def test_a_folder_that_is_not_a_run_is_left_alone(cli, config, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    found = cli("smallest", config, "--keep", "90%", "--out", tmp_path / "out", "--overwrite")
    assert found.code == 2
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
