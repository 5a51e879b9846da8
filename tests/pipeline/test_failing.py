"""Trainings that fail: they are found, begun again, and reported where nothing helps."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from helpers.data import write_csv
from helpers.sweeps import sweep
from probescale.deploy.compressed import Compressed
from probescale.errors import Diverged, UserError
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline import run as pipeline
from probescale.pipeline import training
from probescale.pipeline.prepare import prepare
from probescale.pipeline.training import HIGHER, LONGER, LOWER, Training
from probescale.pipeline.validate import check
from probescale.recovery.health import Health
from probescale.recovery.result import RunResult

pytestmark = pytest.mark.slow

GOOD, BAD, CERTAIN = Health(1.0, 0.5, 0.2), Health(0.5, 0.5, 0.97), Health(1.0, 0.5, 1.4)


def raw_config(model_folder, train, dev, **recovery) -> dict[str, Any]:
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(train), "dev": str(dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2, "strategy": "stitched"},
        "shrink": "none",
        "compare": ["top_k"],
        "recovery": {"epochs": 4, "learning_rate": 3e-3, "batch_size": 16, "augment": 0, **recovery},
    }


# An original that cannot learn


def unreadable(folder, rows: int = 160):
    """A task in letters that the tokenizer does not have: all texts look alike to the model."""
    rng = random.Random(0)
    letters = "абвгдежзийклмнопрст"
    texts = {" ".join("".join(rng.choices(letters, k=6)) for _ in range(5)) for _ in range(rows)}
    labelled = [(text, "yes" if number % 2 else "no") for number, text in enumerate(sorted(texts))]
    return write_csv(folder / "train.csv", labelled[:120]), write_csv(folder / "dev.csv", labelled[120:])


@pytest.fixture(
    scope="module",
    params=sweep(["a rate of next to nothing", "texts that nobody can read"], always=["a rate of next to nothing"]),
)
def failed(request, model_folder, task_files, tmp_path_factory):
    """The configuration of a run that cannot work."""
    folder = tmp_path_factory.mktemp("failed")
    if request.param == "a rate of next to nothing":
        raw = raw_config(model_folder, task_files.train, task_files.dev, learning_rate=1e-9)
    else:
        raw = raw_config(model_folder, *unreadable(folder))
        raw["selection"] = {"k": 2, "strategy": "bottom_k"}  # its probes are all alike
    path = folder / "config.yaml"
    path.write_text(json.dumps(raw))
    return path


def test_an_original_that_cannot_learn_is_a_failure(cli, failed):
    out = failed.with_name("out")
    done = cli("run", failed, "--out", out)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert " ".join(done.err.split()).count("trying another learning rate") == 2
    result = RunResult.load(out / "metrics.json")
    assert result.failure
    assert result.failure.startswith("The original did not learn the task: its score on training texts is 0.")
    assert "one and the same answer for all would reach 0.5" in result.failure
    assert "Next: check the labels" in result.failure
    assert result.failure in " ".join(done.out.split()), "the command says so"

    assert result.original.failure
    models = (result.original, result.subnetwork, *result.compared.values(), *result.alternatives)
    assert len(models) > 3
    assert {model.retention for model in (result, *models)} == {None}
    written = (out / "metrics.json").read_text()
    assert written.count('"retention": null') == written.count('"retention"') == len(models) + 1

    for name in ("report.md", "model/README.md"):
        text = (out / name).read_text()
        assert "> **Do not ship it:** The original did not learn the task" in text
        assert "retention" not in text
    page = (out / "report.html").read_text()
    assert "Do not ship it" in page
    assert "The original did not learn the task: its score" in page
    assert "training failed" in repr(Compressed(out))


# Attempts


@pytest.fixture
def bench(model_folder, task_files):
    return prepare(check(raw_config(model_folder, task_files.train, task_files.dev)))


@pytest.fixture
def attempts(monkeypatch):
    """Replace trainings and their checks: give a function that takes what each training ends with."""

    def play(*ends: Health | Exception):
        left, seen = list(ends), []

        def fine_tune(_model, _data, recipe, **options):
            seen.append((recipe.learning_rate, recipe.epochs, options["seed"], options["checkpoints"]))
            end = left.pop(0)
            if isinstance(end, Exception):
                raise end
            checked.append(end)
            return (float(len(seen)),)

        checked: list[Health] = []
        monkeypatch.setattr(training, "fine_tune", fine_tune)
        monkeypatch.setattr(training, "check_trained", lambda *_: checked[-1])
        monkeypatch.setattr(training, "check_subnetwork", lambda *_: checked[-1])
        return seen

    return play


def diverged() -> UserError:
    return Diverged("the loss is nan", rate=1e-3)


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        ((GOOD,), 1),
        ((BAD, GOOD), 2),
        ((BAD, CERTAIN), 2),  # it has learned, though its loss is higher
        ((BAD, BAD, GOOD), 3),
        ((BAD, Health(0.5, 0.5, 0.99), Health(0.5, 0.5, 0.96)), 3),  # none has; the lowest loss
        ((BAD, Health(0.5, 0.5, 0.99), Health(0.5, 0.5, 0.98)), 1),
    ],
)
def test_the_original_is_trained_again_at_other_rates(bench, tmp_path, attempts, ends, kept):
    seen = attempts(*ends)
    model, losses, health = Training(bench, tmp_path, ShrinkPlan()).train_original()
    assert losses == (float(kept),)
    assert health == ends[kept - 1]
    assert model.layers == 4
    assert [rate for rate, *_ in seen] == pytest.approx([3e-3, 3e-3 * HIGHER, 3e-3 * LOWER][: len(ends)])
    assert [epochs for _, epochs, *_ in seen] == [4, 4 * LONGER, 4 * LONGER][: len(ends)]
    assert len({folder for *_, folder in seen}) == len(ends), "no attempt resumes from another's checkpoints"


def test_a_higher_rate_that_diverges_is_passed_over(bench, tmp_path, attempts):
    seen = attempts(BAD, diverged(), GOOD)
    _, losses, health = Training(bench, tmp_path, ShrinkPlan()).train_original()
    assert (losses, health) == ((3.0,), GOOD)
    assert len(seen) == 3


@pytest.mark.parametrize("ends", [(diverged(),), (BAD, UserError("no such column", field="task.train.text"))])
def test_other_errors_are_not_passed_over(bench, tmp_path, attempts, ends):
    attempts(*ends)
    with pytest.raises(UserError) as error:
        Training(bench, tmp_path, ShrinkPlan()).train_original()
    assert error.value is ends[-1]


@pytest.mark.parametrize(
    ("ends", "kept"),
    [((GOOD,), 1), ((BAD, GOOD), 2), ((BAD, CERTAIN), 2), ((BAD, Health(0.5, 0.5, 0.99)), 1)],
)
def test_a_subnetwork_is_trained_once_more_for_longer(bench, tmp_path, attempts, ends, kept):
    attempts(GOOD)
    work = Training(bench, tmp_path, ShrinkPlan())
    work.train_original()
    seen = attempts(*ends)
    model, losses, health = work.fine_tune("tried", (1, 3))
    said = "it did not learn at first; trained for longer" if kept == 2 else ""
    assert (losses, health, model.layers) == ((float(kept),), replace(ends[kept - 1], retried=said), 2)
    assert [rate for rate, *_ in seen] == [3e-3] * len(ends)
    assert [epochs for _, epochs, *_ in seen] == [4, 4 * LONGER][: len(ends)]
    assert [seed for *_, seed, _ in seen] == [0, 1][: len(ends)], "in another order"
    assert len({folder for *_, folder in seen}) == len(ends)


def test_an_untrained_model_is_not_trained_again(model_folder, task_files, tmp_path, attempts):
    """No epochs are what the user asked for."""
    bench = prepare(check(raw_config(model_folder, task_files.train, task_files.dev, epochs=0)))
    seen = attempts(BAD, BAD)
    work = Training(bench, tmp_path, ShrinkPlan())
    assert work.train_original()[2] == BAD
    assert work.fine_tune("untrained", (1, 3))[2] == BAD
    assert len(seen) == 2


def test_a_run_recovers_from_a_first_training_that_failed(model_folder, task_files, tmp_path, monkeypatch):
    real, titles = training.fine_tune, []

    def fail_at_first(*args, **options):
        titles.append(options["title"])
        return () if titles.count(options["title"]) == 1 else real(*args, **options)

    monkeypatch.setattr(training, "fine_tune", fail_at_first)
    recovery = {"start": "pretrained", "original": {"epochs": 4, "learning_rate": 1e-3}}
    raw = raw_config(model_folder, task_files.train, task_files.dev, **recovery) | {"compare": []}
    result = pipeline.run(check(raw), tmp_path / "out")
    assert titles == ["fine-tuning: original"] * 2 + ["fine-tuning: stitched"] * 2
    assert result.failure is None
    assert result.original.value > 0.9
    assert result.retention == result.subnetwork.value / result.original.value
    assert result.original.losses
    assert "Do not ship it" not in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.long
def test_only_the_small_model_fails(model_folder, task_files, tmp_path, monkeypatch):
    real = training.fine_tune

    def only_the_original(*args, **options):
        return real(*args, **options) if options["title"] == "fine-tuning: original" else ()

    monkeypatch.setattr(training, "fine_tune", only_the_original)
    raw = raw_config(model_folder, task_files.train, task_files.dev, start="pretrained", epochs=6) | {"compare": []}
    result = pipeline.run(check(raw), tmp_path / "out")
    assert result.failure
    assert result.failure.startswith("The small model did not learn the task")
    assert "choose a larger budget" in result.failure
    assert (result.original.failure, bool(result.subnetwork.failure)) == ("", True)
    assert result.retention is result.original.retention is None
