"""Models that were fine-tuned elsewhere: compressed as they are, or used as a teacher."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from helpers.data import TinyTask, write_csv
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline import run as pipeline
from probescale.pipeline import training
from probescale.pipeline.prepare import prepare
from probescale.pipeline.training import Training
from probescale.pipeline.validate import check, load_config
from probescale.recovery.recipe import Choices
from probescale.recovery.result import RunResult

pytestmark = pytest.mark.slow


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def train_plainly(source: Path, target: Path, rows: Sequence[tuple[str, float]], **options: Any) -> Path:
    """Fine-tune with torch and transformers alone, and save the model with its tokenizer."""
    torch.manual_seed(0)
    model: Any = AutoModelForSequenceClassification.from_pretrained(source, **options)
    tokenizer = AutoTokenizer.from_pretrained(source)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(10):
        for start in range(0, len(rows), 20):
            texts, labels = zip(*rows[start : start + 20], strict=True)
            batch = tokenizer(list(texts), padding=True, return_tensors="pt")
            kind = torch.float32 if options.get("num_labels") == 1 else torch.long
            model(**batch, labels=torch.tensor(labels, dtype=kind)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def stock_logits(folder: Path, texts: list[str]) -> torch.Tensor:
    """What plain transformers computes."""
    model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")).logits


@pytest.fixture(scope="module")
def files(task_files, tmp_path_factory) -> TinyTask:
    """The small task, with five wrong labels in dev: nobody gets everything right."""
    rows = [(row["text"], row["label"]) for row in read_rows(task_files.dev)]
    turned = [(text, "negative" if label == "positive" else "positive") for text, label in rows[:5]]
    return TinyTask(task_files.train, write_csv(tmp_path_factory.mktemp("data") / "dev.csv", [*turned, *rows[5:]]))


def fine_tuned(family: str, names: list[str], files: TinyTask, model_folder, target: Path) -> Path:
    """A classifier whose labels have these names, in this order."""
    of_data = {"positive": "positive", "negative": "negative"}
    number = {of_data[name.lower()]: n for n, name in enumerate(names)}
    rows = [(row["text"], number[row["label"]]) for row in read_rows(files.train)]
    ids = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    return train_plainly(model_folder(family), target, rows, **ids)


@pytest.fixture(scope="module")
def classifier(model_folder, files, tmp_path_factory) -> Path:
    """A BERT with its labels in another order and another case than the data."""
    folder = tmp_path_factory.mktemp("classifier") / "bert"
    return fine_tuned("bert", ["Positive", "NEGATIVE"], files, model_folder, folder)


def raw_config(source: Path, files: TinyTask, **recovery: Any) -> dict[str, Any]:
    return {
        "model": {"source": str(source), "max_length": 32},
        "task": {"name": "tiny", "train": str(files.train), "dev": str(files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2, "strategy": "stitched"},
        "shrink": "none",
        "recovery": {"epochs": 4, "learning_rate": 2e-3, "batch_size": 16, "augment": 0, **recovery},
    }


def accuracy(folder: Path, names: list[str], path: Path) -> float:
    """By plain transformers; `names`: of the labels as the data has them, in the model's order."""
    rows = read_rows(path)
    answers = stock_logits(folder, [row["text"] for row in rows]).argmax(-1).tolist()
    return sum(names[answer] == row["label"] for answer, row in zip(answers, rows, strict=True)) / len(rows)


# As it is


@pytest.fixture(scope="module")
def compressed(classifier, files, tmp_path_factory) -> tuple[Path, RunResult]:
    out = tmp_path_factory.mktemp("compressed") / "out"
    with pytest.MonkeyPatch.context() as patch:
        real = training.fine_tune

        def no_original(model, data, recipe, **options):
            assert recipe.epochs == 0 or options["title"] != "fine-tuning: original", "it is not trained"
            return real(model, data, recipe, **options)

        patch.setattr(training, "fine_tune", no_original)
        return out, pipeline.run(check(raw_config(classifier, files)), out)


def test_a_fine_tuned_classifier_is_not_trained_again(compressed, classifier, files):
    out, result = compressed
    assert Choices.load(out / "recipe.json").original_epochs == 0
    assert result.original.losses == ()
    assert "the original as it is" in result.recipe
    assert load_config(out / "config.yaml").recovery.original.epochs == 0
    expected = accuracy(classifier, ["positive", "negative"], files.dev)
    assert 0.5 < expected < 1, "five labels are wrong"
    assert result.original.value == pytest.approx(expected)
    assert result.failure is None
    assert result.subnetwork.value > 0.7


def test_labels_keep_the_models_order_and_the_datas_names(compressed, files):
    out, result = compressed
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "positive", "1": "negative"}
    assert config["label2id"] == {"positive": 0, "negative": 1}
    assert accuracy(out / "model", ["positive", "negative"], files.dev) == pytest.approx(result.subnetwork.value)
    predicted = read_rows(out / "predictions.csv")
    labels = [row["label"] for row in read_rows(files.dev)]
    assert [row["right"] for row in predicted] == labels
    right = [row["original"] == row["right"] for row in predicted]
    assert sum(right) / len(right) == pytest.approx(result.original.value)


def test_the_small_model_is_cut_from_the_fine_tuned_one(classifier, files, tmp_path):
    """Without any training, it computes what layers of the classifier compute, its head included."""
    raw = raw_config(classifier, files, epochs=0)
    raw["selection"] = {"k": 4, "strategy": "bottom_k"}
    result = pipeline.run(check(raw), tmp_path / "out")
    texts = [row["text"] for row in read_rows(files.dev)]
    assert torch.allclose(stock_logits(tmp_path / "out" / "model", texts), stock_logits(classifier, texts), atol=1e-5)
    assert result.subnetwork.value == result.original.value


@pytest.mark.long
def test_retrain_trains_a_new_head(cli, classifier, files, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(raw_config(classifier, files)))
    done = cli("run", path, "--out", tmp_path / "out", "--set", "recovery.original.retrain=true")
    assert done.code == 0, done.err
    assert Choices.load(tmp_path / "out" / "recipe.json").original_epochs == 4
    result = RunResult.load(tmp_path / "out" / "metrics.json")
    assert len(result.original.losses) == 4
    assert "the original as it is" not in result.recipe
    config = json.loads((tmp_path / "out" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "negative", "1": "positive"}, "in the data's own order"


def test_a_classifier_for_other_labels_gets_a_new_head(model_folder, files, capsys):
    bench = prepare(check(raw_config(model_folder("bert"), files)))
    assert not bench.loaded.head_is_trained
    assert bench.chosen_recipe.original_epochs == 4
    said = " ".join(capsys.readouterr().err.split())
    assert "the model was fine-tuned for other labels (LABEL_0, LABEL_1)" in said
    assert "it gets a new head for negative, positive" in said


def test_a_classifier_that_a_probe_exceeds_on_new_texts_has_not_failed(model_folder, files, tmp_path, capsys):
    """It learned from other texts. One that was trained on these and is below a probe of them has learned nothing."""
    names = ["negative", "positive"]
    bench = prepare(check(raw_config(fine_tuned("bert", names, files, model_folder, tmp_path / "source"), files)))
    training = Training(bench, tmp_path / "work", ShrinkPlan())
    training.best_probe = 1.5  # better than anything
    recipe = training.choices.for_original(bench.config.recovery)
    assert recipe.epochs == 0
    assert training._check_original(bench.loaded, recipe).learned
    said = " ".join(capsys.readouterr().err.split())
    assert "the original is used as it is: its score on training texts is" in said
    assert "with --retrain it learns from these texts" in said
    assert not training._check_original(bench.loaded, replace(recipe, epochs=1)).learned


@pytest.mark.long
def test_a_fine_tuned_regression_model(model_folder, files, tmp_path):
    """Its answers are in the units of the data, far from standard ones; so are those of the small model."""
    for part, path in (("train", files.train), ("dev", files.dev)):
        numbered = [(row["text"], str(340 + 20 * (row["label"] == "positive"))) for row in read_rows(path)]
        write_csv(tmp_path / f"{part}.csv", numbered)
    rows = [(row["text"], (float(row["label"]) - 350) / 10) for row in read_rows(tmp_path / "train.csv")]
    options = {"num_labels": 1, "problem_type": "regression", "ignore_mismatched_sizes": True}
    source = train_plainly(model_folder("bert"), tmp_path / "regression", rows, **options)
    model: Any = AutoModelForSequenceClassification.from_pretrained(source)
    with torch.no_grad():
        model.classifier.weight.mul_(10)
        model.classifier.bias.mul_(10).add_(350)
    model.save_pretrained(source)
    raw = raw_config(source, TinyTask(tmp_path / "train.csv", tmp_path / "dev.csv"))
    raw["task"] |= {"kind": "number", "metric": "r2"}
    result = pipeline.run(check(raw), tmp_path / "out")
    assert result.original.losses == ()
    dev = read_rows(tmp_path / "dev.csv")
    gold, texts = np.array([float(row["label"]) for row in dev]), [row["text"] for row in dev]
    answers = {folder: stock_logits(folder, texts)[:, 0].numpy() for folder in (source, tmp_path / "out" / "model")}
    r2 = {folder: 1 - ((given - gold) ** 2).mean() / gold.var() for folder, given in answers.items()}
    assert result.original.value == pytest.approx(r2[source], abs=1e-4)
    assert result.subnetwork.value == pytest.approx(r2[tmp_path / "out" / "model"], abs=1e-4)
    assert result.failure is None
    distance = np.abs(answers[source] - answers[tmp_path / "out" / "model"]).mean()
    assert distance < 5, "where the labels are 20 apart"


# As a teacher


@pytest.fixture(scope="module")
def teacher(model_folder, files, tmp_path_factory) -> Path:
    """A RoBERTa with another tokenizer and its labels in another order."""
    folder = tmp_path_factory.mktemp("teacher") / "roberta"
    return fine_tuned("roberta", ["POSITIVE", "negative"], files, model_folder, folder)


def test_the_answers_of_another_family_are_learned(model_folder, files, teacher, tmp_path):
    """Its logits stand in the order of the task's labels."""
    bench = prepare(check(raw_config(model_folder("bert"), files, teacher=str(teacher), epochs=0)))
    work = Training(bench, tmp_path, ShrinkPlan())
    work.train_original()
    outputs = work.teacher_outputs()
    assert outputs is not None
    assert bench.task.train.names == ("negative", "positive")
    expected = stock_logits(teacher, list(bench.task.train.texts))[:, [1, 0]].numpy()
    np.testing.assert_allclose(outputs.logits, expected, atol=1e-4)
    right = (outputs.logits.argmax(-1) == bench.task.train.gold).mean()
    assert right > 0.9, "it was trained for them"


@pytest.mark.long
def test_a_run_with_a_teacher_of_another_family(model_folder, files, teacher, tmp_path):
    recovery = {"teacher": str(teacher), "soft": 1.0, "epochs": 6}
    result = pipeline.run(check(raw_config(model_folder("bert"), files, **recovery)), tmp_path / "out")
    assert f"subnetworks distilled from {teacher}" in result.recipe
    assert result.failure is None
    assert result.subnetwork.value > 0.7
    assert len(result.original.losses) == 6, "the original is trained as ever"


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was trained before the teacher was looked at")

    monkeypatch.setattr(training, "fine_tune", refuse)


@pytest.fixture(params=["other labels", "more labels", "another head", "no model"])
def unfit(request, model_folder, tmp_path) -> tuple[Path, str]:
    """A teacher that does not fit, and what is said of it."""
    folder, source = tmp_path / "unfit", model_folder("roberta")
    if request.param == "no model":
        return folder, "unfit"
    if request.param == "another head":
        model: Any = AutoModelForTokenClassification.from_pretrained(source)
        said = "was not fine-tuned for such a task"
    else:
        names = ["spam", "ham"] if request.param == "other labels" else ["negative", "neutral", "positive"]
        ids = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
        model = AutoModelForSequenceClassification.from_pretrained(source, ignore_mismatched_sizes=True, **ids)
        said = f"its labels are {', '.join(names)}; those of the task are negative, positive"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder, said


def test_a_teacher_that_does_not_fit_is_refused_before_any_training(
    cli, model_folder, files, unfit, no_training, tmp_path
):
    folder, said = unfit
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "config.yaml"
    path.write_text(json.dumps(raw_config(model_folder("bert"), files, teacher=str(folder))))
    done = cli("run", path, "--out", tmp_path / "runs" / "out")
    assert done.code == 2
    message = " ".join(done.err.split())
    assert "error: recovery.teacher: " in message
    assert said in message
    assert message.count("error:") == 1
    assert "Traceback" not in message
    assert list(tmp_path.rglob("out*")) == []


def test_states_of_another_family_are_no_targets(cli, model_folder, files, teacher, no_training, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(raw_config(model_folder("bert"), files, teacher=str(teacher), states=0.5)))
    done = cli("run", path, "--out", tmp_path / "out")
    assert done.code == 2
    assert "recovery.states: the states of another model are no targets" in " ".join(done.err.split())
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]
