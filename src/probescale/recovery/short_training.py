"""Short trainings, by which a tournament compares candidates: train on some texts, measure the loss on others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import TeacherOutputs
from probescale.recovery.training import TrainingRun, changed_dropout, train
from probescale.recovery.training_set import TrainingSet, build_training_set
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.utils.distributed import run_on_all

MAX_HELD_OUT = 1000  # inputs


class ShortTraining(NamedTuple):
    """Losses on held-out inputs after a short training, and what it cost."""

    loss: float
    constant: float  # loss of the best constant predictor
    seconds: float  # of the training alone


def train_briefly(
    loaded: LoadedModel,
    data: Data,
    recipe: Recipe,
    *,
    texts: int,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    held_out: frozenset[int] = frozenset(),
    max_length: int = 128,
    seed: int = 0,
    title: str = "short training",
) -> ShortTraining:
    """Train the model in place on `texts` texts, repeating them if there are fewer; its loss on held-out inputs.

    `held_out`: numbers of inputs that are not learned; at most MAX_HELD_OUT of them are answered.
    """
    inputs = len(data) + (len(teacher.unlabelled) if teacher and teacher.unlabelled else 0)
    order = np.random.default_rng(seed).permutation(inputs).tolist()
    asked = [number for number in order if number in held_out][:MAX_HELD_OUT]
    used = [number for number in order if number not in held_out][:texts]
    learned, scale = build_training_set(loaded, data, recipe, max_length, teacher, kept, only=[*asked, *used])
    learned = replace(learned, held_out=asked, used=used)
    if find_kind(data.kind).standardised and loaded.head_is_trained:
        scale.take_out_of_head(loaded.model)
    epochs = max(round(texts / len(learned.used)), 1)
    run = TrainingRun(replace(recipe, epochs=epochs, tracking=()), seed, title)
    with changed_dropout(loaded.model, recipe.dropout):
        return run_on_all(_train_and_evaluate, loaded, learned, run)


def _train_and_evaluate(loaded: LoadedModel, data: TrainingSet, run: TrainingRun) -> ShortTraining:
    started = time.perf_counter()
    train(loaded, replace(data, held_out=()), run)  # no early stop
    seconds = time.perf_counter() - started
    logits, rows = data.held_out_logits(loaded)
    objective = data.objective
    constant = objective.constant_logits(logits, rows)
    return ShortTraining(objective.loss(logits, rows).item(), objective.loss(constant, rows).item(), seconds)
