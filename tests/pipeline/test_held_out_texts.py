"""Texts that a choice is judged by are learned in no form before it is made: neither they, nor changed copies."""

from __future__ import annotations

from typing import Any

from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.prepare import prepare
from probescale.pipeline.training import Training
from probescale.pipeline.validate import check
from probescale.recovery import fine_tuning, short_training
from probescale.recovery.answered_texts import FROM_SHORT_TRAININGS


def raw_config(model_folder, task_files, **recovery: Any) -> dict[str, Any]:
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"budget": "45%"},
        "shrink": "none",
        "recovery": {"batch_size": 16, "augment": 2, "original": {"epochs": 1}, **recovery},
    }


def test_short_trainings_learn_no_copies_of_the_texts_that_judge_them(model_folder, task_files, tmp_path, monkeypatch):
    bench = prepare(check(raw_config(model_folder, task_files)))
    training, learned = Training(bench, tmp_path, ShrinkPlan()), []
    training.train_original()
    real = short_training.train
    spy = lambda model, data, run: learned.append(data) or real(model, data, run)  # noqa: E731
    monkeypatch.setattr(short_training, "train", spy)
    training.train_briefly("one", (1,), 400)
    [data] = learned
    origins = training.texts.origins
    judges = {int(origins[number]) for number in training.judged_by.inputs}
    assert judges == training.judged_by.texts
    assert len(judges) == round(FROM_SHORT_TRAININGS[0] * len(bench.task.train))
    assert judges.isdisjoint(int(origins[number]) for number in data.used)
    assert not training.reserved, "the final training learns from all texts"


def test_copies_of_texts_that_choose_the_best_epoch_are_not_learned(model_folder, task_files, tmp_path, monkeypatch):
    bench = prepare(check(raw_config(model_folder, task_files, epochs=1, validation=0.25)))
    training, learned = Training(bench, tmp_path, ShrinkPlan()), []
    training.train_original()
    real = fine_tuning.train
    spy = lambda model, data, run: learned.append(data) or real(model, data, run)  # noqa: E731
    monkeypatch.setattr(fine_tuning, "train", spy)
    training.fine_tune("one", (1,))
    data = learned[0]
    judges = set(data.held_out)
    assert len(judges) == 30, "a quarter of the labelled texts, and nothing else"
    assert judges.isdisjoint(training.texts.origins[list(data.used)].tolist())
    assert len(data.used) == 90 * 3
