"""The smallest model that keeps a share of the metric: measured, bracketed, saved, resumed after a stop."""

from __future__ import annotations

import csv
import json
import signal

import pytest
from ruamel.yaml import YAML
from transformers import AutoModelForSequenceClassification

from helpers.models import LAYERS
from probescale.errors import UserError
from probescale.pipeline import training
from probescale.pipeline.prepare import prepare
from probescale.pipeline.smallest import RUNGS, VALIDATION, parse_share
from probescale.pipeline.validate import load_config
from probescale.recovery.label_scale import find_output_layer
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.report.tables import search_notes
from probescale.selection.bracket import max_evaluations

BUDGETS = [f"{ratio:g}x" for ratio in RUNGS]  # the smallest first
MOST_TRIALS = max_evaluations(len(RUNGS)) + 1


@pytest.fixture(scope="module")
def config(tmp_path_factory, model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},  # of so few rows, accuracies may all be equal
        "selection": {"k": 2, "strategy": "best_scores"},
        "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "dropout": 0, "augment": 0},
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
    assert original["budget"] == "1x"
    assert original["kept"] == list(range(1, LAYERS + 1))
    assert original["expected"] is None
    assert original["enough"]
    assert search["wanted"] == pytest.approx(search["keep"] * original["value"])
    assert len(search["trials"]) <= MOST_TRIALS
    budgets = [trial["budget"] for trial in search["trials"]]
    assert len(set(budgets)) == len(budgets)
    assert search["examples"] == 24, "a fifth of train"
    for trial in others:
        assert trial["budget"] in BUDGETS
        assert trial["params"] <= original["params"] / float(trial["budget"].removesuffix("x"))
    for trial in search["trials"]:
        assert trial["enough"] == (trial["value"] >= search["wanted"])
        assert trial["retention"] == pytest.approx(trial["value"] / original["value"])
    assert all(trial["expected"] is not None for trial in others)
    enough = [trial["budget"] for trial in search["trials"] if trial["enough"]]
    assert search["answer"] == min(enough, key=[*BUDGETS, "1x"].index), (
        "the answer was measured, and no smaller one that was measured does"
    )
    place = [*BUDGETS, "1x"].index(search["answer"])
    below = [trial["enough"] for trial in others if trial["budget"] == BUDGETS[place - 1] and place]
    assert search["bracketed"]
    assert below in ([], [False]), "the next smaller size was trained, or there is none"
    assert below or not any(BUDGETS.index(trial["budget"]) < place for trial in others)


def check_predictions(folder, metrics):
    """Assert that predictions.csv holds what each of the models predicts, of whatever size."""
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    models = {"original": metrics["original"], metrics["strategy"]: metrics["subnetwork"], **metrics["compared"]}
    assert list(rows[0]) == ["row", "right", *models]
    for name, model in models.items():
        assert sum(row["right"] == row[name] for row in rows) / len(rows) == pytest.approx(model["value"]), name


@pytest.fixture
def stop_at(monkeypatch):
    """Interrupt the training with this number once; give the list of all started trainings."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore the signal

    def patch(number, *, train=True):
        begun = []
        fine_tune = training.fine_tune

        def stop(*args, **kwargs):
            begun.append(kwargs["title"])
            if len(begun) == number:
                signal.raise_signal(signal.SIGINT)
            if train:
                return fine_tune(*args, **kwargs)
            find_output_layer(args[0].model).weight.data.zero_()  # one answer to all
            return ()

        monkeypatch.setattr(training, "fine_tune", stop)
        return begun

    yield patch
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
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

    answer = next(trial for trial in search["trials"] if trial["budget"] == search["answer"])
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert model.config.num_hidden_layers == len(answer["kept"])
    assert model.num_parameters() == answer["params"]
    record = json.loads((tmp_path / "out" / "model" / "probescale.json").read_text())
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert record["kept"] == selection["kept"] == metrics["subnetwork"]["kept"] == answer["kept"]
    assert metrics["subnetwork"]["validation"] == answer["value"], "decided on a part of train"
    assert metrics["subnetwork"]["validation"] >= 0.9 * metrics["original"]["validation"]
    assert {"scores.json", "config.yaml", "report.md"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert (
        "The dev set was not used for probing, selection or training." in (tmp_path / "out" / "report.md").read_text()
    )
    check_predictions(tmp_path / "out", metrics)
    assert "enough" in found.out


@pytest.mark.slow
@pytest.mark.long
def test_keeping_100_percent_may_need_the_original(cli, config, tmp_path, monkeypatch):
    """Only the original is trained here, so that every smaller model is worse."""
    fine_tune = training.fine_tune

    def only_the_original(*args, **kwargs):
        return fine_tune(*args, **kwargs) if kwargs["title"] == "fine-tuning: original" else ()

    monkeypatch.setattr(training, "fine_tune", only_the_original)
    options = ["--keep", "100%", "--out", tmp_path / "out", "--set", "recovery.start=pretrained"]
    found = cli("smallest", config, *options)
    assert found.code == 0, found.err
    search = read(tmp_path / "out")
    check_search(search)
    assert search["answer"] == "1x"
    assert "No smaller model keeps 100.0%" in found.out
    assert "Decided on 24 examples of train that nothing learned from; dev decided nothing." in found.out
    assert "On dev, measured once: " in found.out
    for page in ("report.md", "report.html"):
        assert "The size was decided on a part of train" in (tmp_path / "out" / page).read_text()
    check_predictions(tmp_path / "out", json.loads((tmp_path / "out" / "metrics.json").read_text()))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert model.config.num_hidden_layers == LAYERS


@pytest.mark.long
def test_a_search_stopped_late_trains_nothing_again(cli, config, tmp_path, stop_at):
    """All sizes predict alike, so that each is enough and is saved in turn."""
    begun = stop_at(5, train=False)  # after three attempts at the original, and the first size
    options = ["smallest", config, "--keep", "50%", "--out", tmp_path / "out"]
    assert cli(*options).code == 130
    found = cli(*options)
    assert found.code == 1, "nothing was learned"
    assert "The original did not learn the task" in found.out
    sizes = len(read(tmp_path / "out")["trials"]) - 1
    assert begun.count("fine-tuning: original") == 3
    assert len(begun) == 3 + sizes + 1
    assert begun[4] == begun[5] != begun[3], "the one that was stopped is trained again"


@pytest.mark.long
def test_a_gap_leaves_fewer_sizes_and_the_configured_budget_is_ignored(cli, config, tmp_path):
    options = ["--set", "selection.gap=2", "--set", "selection.k=9", "--set", "recovery.epochs=0"]
    options += ["--set", "shrink=none"]
    found = cli("smallest", config, "--keep", "50%", "--out", tmp_path / "out", *options)
    assert found.code == 1, "untrained models have not learned anything"
    search = read(tmp_path / "out")
    assert all(len(trial["kept"]) in (1, 2, 4) for trial in search["trials"])
    assert {trial["budget"] for trial in search["trials"]} <= {"1x", "1.5x", "2x"}, "layers alone make no smaller one"


def test_nothing_learns_from_what_the_size_is_decided_on(config):
    bench = prepare(load_config(config), VALIDATION)
    assert bench.task.validation is not None
    unseen = {*bench.task.validation.texts, *bench.task.dev.texts}
    assert unseen.isdisjoint(bench.task.train.texts)
    assert unseen.isdisjoint(bench.shrinker.texts.texts), "the vocabulary is trimmed by other texts"
    assert bench.provenance == prepare(load_config(config)).provenance, "it names the data as given"


def test_a_search_with_a_metric_of_zero_is_reported():
    """A constant predictor has a Matthews correlation of 0: every model keeps any share of it."""
    trials = [
        SearchStep(
            budget=budget, kept=kept, params=10 * len(kept), expected=None, value=0.0, retention=None, enough=True
        )
        for budget, kept in (("1x", (1, 2)), ("2x", (1,)))
    ]
    search = SmallestSearch(
        metric="matthews", keep=0.5, wanted=0.0, trials=tuple(trials), answer="2x", bracketed=True, examples=24
    )
    assert "2x smaller keeps there with 50.0% of the parameters" in search_notes(search)[0]


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


def test_a_time_that_would_be_ignored_is_refused(cli, config, tmp_path):
    found = cli("smallest", config, "--keep", "90%", "--set", "time=30m", "--out", tmp_path / "out")
    assert found.code == 2
    assert "time: a search for the smallest model chooses this by itself" in found.err
    assert "leave it out" in found.err
    assert list(tmp_path.iterdir()) == []


def test_an_infinite_share_is_refused():
    with pytest.raises(UserError, match="is not a share"):
        parse_share("inf")


def test_a_folder_that_is_not_a_run_is_left_alone(cli, config, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    found = cli("smallest", config, "--keep", "90%", "--out", tmp_path / "out", "--overwrite")
    assert found.code == 2
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
