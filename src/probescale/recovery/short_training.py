"""Short trainings, by which a tournament compares candidates: train on some texts, measure the loss on others."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probescale.config import RecoveryConfig
from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset
from probescale.recovery.teacher import TeacherOutputs
from probescale.recovery.training import TrainingRun, changed_dropout, train
from probescale.recovery.training_set import TrainingSet, build_training_set
from probescale.tasks.data import Data
from probescale.utils.distributed import run_on_all

MAX_HELD_OUT = 1000  # inputs


class HeldOutLoss(NamedTuple):
    """Losses on held-out inputs after a short training."""

    model: float
    constant: float  # of the best constant predictor


def train_briefly(
    loaded: LoadedModel,
    data: Data,
    recipe: RecoveryConfig,
    *,
    texts: int,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    max_length: int = 128,
    seed: int = 0,
    title: str = "short training",
) -> HeldOutLoss:
    """Train the model in place on `texts` texts, repeating them if there are fewer; its loss on held-out inputs."""
    learned, _ = build_training_set(loaded, data, recipe, max_length, teacher, kept)
    order = np.random.default_rng(seed).permutation(len(learned.inputs)).tolist()
    first = count_held_out(len(order))
    learned = replace(learned, held_out=order[:first], used=order[first : first + texts])
    epochs = max(round(texts / len(learned.used)), 1)
    run = TrainingRun(recipe.model_copy(update={"epochs": epochs, "tracking": ()}), seed, title)
    with changed_dropout(loaded.model, recipe.dropout):
        return run_on_all(_train_and_evaluate, loaded, learned, run)


def count_held_out(inputs: int) -> int:
    """How many of the inputs a short training is evaluated on.

    >>> count_held_out(120), count_held_out(60_000)
    (24, 1000)
    """
    return max(min(MAX_HELD_OUT, inputs // 5), 1)


def _train_and_evaluate(loaded: LoadedModel, data: TrainingSet, run: TrainingRun) -> HeldOutLoss:
    train(loaded, replace(data, held_out=()), run)  # no early stop
    logits, rows = data.held_out_logits(loaded)
    objective = data.objective
    constant = objective.constant_logits(logits, rows)
    return HeldOutLoss(objective.loss(logits, rows).item(), objective.loss(constant, rows).item())
