"""Other models as rows of a run: `compare: [top_k, {model: ...}]`."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from helpers.schedules import USUAL
from probescale.config import RecoveryConfig
from probescale.errors import Diverged, Problems
from probescale.models.loading import load_classifier
from probescale.pipeline import run as pipeline
from probescale.pipeline import training
from probescale.pipeline.prepare import prepare, prepare_other
from probescale.pipeline.validate import check, load_config
from probescale.recovery.automatic import choose_recipe
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.predictions import rename_labels
from probescale.recovery.recipe import Recipe
from probescale.recovery.result import RunResult
from probescale.report.tables import comparison_table
from probescale.tasks.data import load_rows, tuple_rows

RECOVERY = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "augment": 0}


def settings(model_folder, task_files, *others) -> dict:
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2, "strategy": "contiguous"},
        "compare": ["top_k", *others],
        "shrink": "none",
        "recovery": RECOVERY,
    }


@pytest.fixture(scope="module")
def classifier(model_folder, task_files, tmp_path_factory):
    """A model that was fine-tuned elsewhere, with its labels in another order."""
    with task_files.train.open(newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    data = load_rows(rows).with_names(("positive", "negative"))
    loaded = load_classifier(str(model_folder("roberta")), None, data.names, 0, head="sentence")
    fine_tune(loaded, data, Recipe(epochs=6, learning_rate=3e-3, batch_size=16), max_length=32)
    folder = tmp_path_factory.mktemp("elsewhere") / "classifier"
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def out(model_folder, task_files, classifier, tmp_path_factory):
    others = ({"model": str(model_folder("mpnet"))}, {"model": str(classifier), "name": "ours"})
    folder = tmp_path_factory.mktemp("runs") / "out"
    pipeline.run(check(settings(model_folder, task_files, *others)), folder)
    return folder


@pytest.mark.slow
@pytest.mark.long
def test_they_stand_in_every_table_with_their_own_size(out):
    result = RunResult.load(out / "metrics.json")
    assert list(result.other_models) == ["mpnet", "ours"]
    assert list(result.compared) == ["top_k"]
    for name, model in result.other_models.items():
        assert model.ratio_total == model.params / result.original.params
        assert model.retention == pytest.approx(model.value / result.original.value)
        assert model.kept == (1, 2, 3, 4)
        for file in ("report.md", "report.html", "model/README.md"):
            assert name in (out / file).read_text()
    assert [row[0] for row in comparison_table(result).rows][2:5] == ["top_k", "mpnet", "ours"]


@pytest.mark.slow
@pytest.mark.long
def test_a_model_that_is_fine_tuned_already_is_only_measured(out):
    """Its labels have another order, which changes nothing."""
    result = RunResult.load(out / "metrics.json")
    assert result.other_models["ours"].losses == ()
    assert result.other_models["ours"].value > 0.9
    assert result.other_models["mpnet"].losses != ()
    with (out / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    right = np.mean([row["ours"] == row["right"] for row in rows])
    assert right == pytest.approx(result.other_models["ours"].value)


@pytest.mark.slow
@pytest.mark.long
def test_config_yaml_repeats_it(out):
    assert [other.called for other in load_config(out / "config.yaml").other_models] == ["mpnet", "ours"]


@pytest.mark.slow
@pytest.mark.long
def test_a_failed_row_does_not_lose_the_others(model_folder, task_files, tmp_path, monkeypatch):
    real = training.fine_tune

    def fail(*given, **named):
        if named["title"] == "fine-tuning: mpnet":
            raise Diverged("the loss is nan", rate=1e-3)
        return real(*given, **named)

    monkeypatch.setattr(training, "fine_tune", fail)
    raw = settings(model_folder, task_files, {"model": str(model_folder("mpnet"))})
    result = pipeline.run(check(raw | {"compare": raw["compare"][1:]}), tmp_path / "out")
    assert result.other_models == {}
    assert "the loss is nan" in result.failed_models["mpnet"]
    assert "mpnet has no row" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_another_model_learns_the_task_where_the_original_is_used_as_it_is(model_folder, task_files, classifier):
    raw = settings(model_folder, task_files, {"model": str(model_folder("bert"))}, {"model": str(classifier)})
    bench = prepare(check(raw | {"model": {"source": str(classifier), "max_length": 32}, "recovery": {}}))
    assert bench.chosen_recipe.original_epochs == 0
    untrained, trained = (prepare_other(bench, other).chosen_recipe for other in bench.config.other_models)
    assert untrained.original_epochs == choose_recipe(RecoveryConfig(), replace(USUAL, labelled=120)).original_epochs
    assert trained.original_epochs == 0, "it was fine-tuned for these labels, too"


@pytest.mark.parametrize(
    ("entry", "field", "says"),
    [
        ({"model": "nowhere/./here.txt"}, "compare.1.model", ""),
        ({"model": "BERT", "name": "top_k"}, "compare.1.name", "name of another row"),
        ({"model": "BERT", "nam": "x"}, "compare.1", ""),
        ({"model": "BROKEN"}, "compare.1.model", "no usable tokenizer"),
        ({"model": "SEQ2SEQ"}, "compare.1.model", "has no class"),
    ],
)
def test_a_row_that_cannot_be_is_told_before_any_work(entry, field, says, model_folder, task_files, tmp_path):
    broken, other = tmp_path / "broken", tmp_path / "other"
    for folder, change in ((broken, {}), (other, {"model_type": "pegasus", "encoder_layers": 2, "decoder_layers": 2})):
        folder.mkdir()
        config = json.loads((model_folder("bert") / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(config))
    places = {"BERT": str(model_folder("bert")), "BROKEN": str(broken), "SEQ2SEQ": str(other)}
    entry = entry | {"model": places.get(entry["model"], entry["model"])}
    with pytest.raises(Problems) as error:
        check(settings(model_folder, task_files, entry))
    assert any(problem.field.startswith(field) and says in str(problem) for problem in error.value.problems), (
        error.value
    )


def test_two_rows_of_one_name_are_refused(model_folder, task_files):
    same = {"model": str(model_folder("bert"))}
    with pytest.raises(Problems, match='both be called "bert"'):
        check(settings(model_folder, task_files, same, same))


def test_predictions_in_another_order_of_labels():
    names, wanted = ("b", "a"), ("a", "b")
    assert rename_labels(np.array([0, 1, -1]), names, wanted).tolist() == [1, 0, -1]
    assert rename_labels(tuple_rows([(0, -1), (1,)]), names, wanted).tolist() == [(1, -1), (0,)]
    assert rename_labels(tuple_rows([(0.5, -2.0)]), names, wanted).tolist() == [(-2.0, 0.5)], "a logit of every label"
