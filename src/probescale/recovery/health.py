"""Did a training work? A model that learned nothing is found by its answers to the texts that it learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from probescale.config import ClassWeights
from probescale.models.loading import LoadedModel
from probescale.models.packing import pack
from probescale.recovery.inputs import TextInputs, build_inputs
from probescale.recovery.label_scale import LabelScale
from probescale.recovery.objective import Objective, has_label
from probescale.recovery.predict import compute_logits
from probescale.recovery.training_set import TrainingSet
from probescale.tasks.balance import weigh_classes
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.kinds import find_kind
from probescale.tasks.sampling import sample
from probescale.utils.distributed import run_on_all

CHECKED_TEXTS, CHECKED_TOKENS = 500, 2000  # of labelled texts, of running text
HALFWAY = {"largest_loss": 0.6, "smallest_gain": 0.5}  # of a Health, where there is a teacher
BELOW_PROBE = 0.03  # a fine-tuned model answers its own training texts better than a linear probe answers new ones


@dataclass(frozen=True)
class Health:
    """What a trained model answers to training texts, in comparison with simpler predictors."""

    score: float  # accuracy, or R2 for numbers
    constant_score: float  # of the best constant predictor
    loss_share: float  # of the loss of the best constant predictor
    best_probe: float | None = None  # score of the best probe of the original's layers, on texts that it did not see
    # Both have to be missed: a loss can be high while every answer is right, and answers can be rare and right.
    largest_loss: float = 0.95
    smallest_gain: float = 0.1
    retried: str = ""  # why and how it was trained again; empty where the first training is kept

    @property
    def below_probe(self) -> bool:
        """Whether a linear probe knows more of the task than the whole model."""
        return self.best_probe is not None and self.score < self.best_probe - BELOW_PROBE

    @property
    def learned(self) -> bool:
        if self.below_probe:
            return False
        if self.constant_score >= 1:  # everything it should answer is the same: there is nothing to miss
            return True
        gain = (self.score - self.constant_score) / (1 - self.constant_score)
        return self.loss_share < self.largest_loss or gain > self.smallest_gain

    def describe(self) -> str:
        """What was found, for a person who wonders why a training is begun again."""
        parts = [
            f"its score on training texts is {self.score:.2f}",
            f"one and the same answer for all would reach {self.constant_score:.2f}",
        ]
        if self.best_probe is not None:
            parts.append(f"a linear probe of the model {self.best_probe:.2f}")
        return ", ".join(parts)


AS_IT_IS = Health(score=1.0, constant_score=0.0, loss_share=0.0)  # of an original from whose answers others learn


def check_trained(
    loaded: LoadedModel, train: Data, max_length: int, best_probe: float | None, class_weights: ClassWeights
) -> Health:
    """The health of the original by its answers to some of what it learned from."""
    if isinstance(train, Documents):
        inputs = TextInputs.from_blocks(pack(loaded.tokenizer, train, max_length))
        return check_tokens(loaded, inputs, range(len(inputs)), 0)
    some = sample(train, CHECKED_TEXTS, seed=0)
    return check_original(logits_on(loaded, some, max_length), some, best_probe, class_weights)


def check_tokens(loaded: LoadedModel, inputs: TextInputs, used: Sequence[int], seed: int) -> Health:
    """The health of a generative model: its predictions against those of token frequencies alone."""
    answers = np.diff(inputs.block_ends, prepend=0)  # per block; a long question may leave no place for its answer
    drawn = np.random.default_rng(seed).permutation(np.asarray([block for block in used if answers[block]]))
    drawn = drawn[: int(np.searchsorted(np.cumsum(answers[drawn]), CHECKED_TOKENS)) + 1]
    values = compute_logits(loaded, inputs, only=drawn.tolist(), title="checking")
    answered = ~np.isnan(values[:, 0])
    shares = np.bincount(inputs.blocks.targets[answered]) / answered.sum()
    frequencies = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    nats, right, _ = values[answered].mean(0)
    return Health(float(right), float(shares.max()), float(nats) / max(frequencies, 1e-9))


def check_original(
    logits: np.ndarray, train: Data, best_probe: float | None, class_weights: ClassWeights = "none"
) -> Health:
    """The health of a fine-tuned original by its logits on the rows of train, which count as they did in training."""
    labels = torch.from_numpy(train.row_labels.astype(np.float32))
    answered = torch.from_numpy(logits[: len(labels)])
    known = has_label(labels) & ~answered[:, 0].isnan()
    labels, answered = labels[known], answered[known]
    weights = weigh_classes(train, class_weights)
    objective = Objective(
        labels, find_kind(train.kind).loss, None if weights is None else torch.from_numpy(weights.astype(np.float32))
    )
    best_probe = best_probe if weights is None else None  # probes know no weights
    return replace(_check_answers(objective, answered, torch.arange(len(labels)), labels), best_probe=best_probe)


def check_subnetwork(loaded: LoadedModel, learned: TrainingSet, seed: int, scale: LabelScale | None = None) -> Health:
    """The health of a trained subnetwork by its answers to some of the inputs that it learned from.

    Where it has a teacher, it should agree with it, or with the labels where these differ: a subnetwork that does so
    on half of what a constant predictor gets wrong, or comes halfway near in its probabilities, has learned.
    `scale`: in which the set has its labels.
    """
    if isinstance(learned.inputs, TextInputs):
        return check_tokens(loaded, learned.inputs, learned.used, seed)
    drawn = np.random.default_rng(seed).permutation(np.asarray(learned.used))[:CHECKED_TEXTS]
    some = replace(learned, held_out=sorted(drawn.tolist()))
    logits, rows = run_on_all(_held_out_logits, loaded, some)
    if scale:
        logits = torch.from_numpy(scale.standardise(logits.numpy()))
    objective, teacher = some.objective, some.objective.teacher_logits
    by_labels = replace(objective, teacher_logits=None)
    if teacher is None:
        return _check_answers(by_labels, logits, rows, objective.labels[rows])
    by_teacher = replace(objective, labels=torch.full_like(objective.labels, torch.nan), class_weights=None)
    answers = objective.criterion.answers(teacher[rows])
    answers[teacher[rows].isnan().any(-1)] = torch.nan
    taught = _check_answers(by_teacher, logits, rows, answers, **HALFWAY)
    if taught.learned or objective.labels[rows].isnan().all():
        return taught
    labelled = _check_answers(by_labels, logits, rows, objective.labels[rows], **HALFWAY)
    return labelled if labelled.learned else taught


def _check_answers(objective: Objective, logits: Tensor, rows: Tensor, wanted: Tensor, **limits: float) -> Health:
    """The health of answers to these rows, by those that are wanted; NaN: not known."""
    known = has_label(wanted)
    logits, rows, wanted = logits[known], rows[known], wanted[known]
    constant = objective.constant_logits(logits, rows)
    share = objective.loss(logits, rows).item() / max(objective.loss(constant, rows).item(), 1e-9)
    health = Health(_score(objective, logits, wanted), _score(objective, constant, wanted), share)
    return replace(health, **limits)


def _score(objective: Objective, logits: Tensor, wanted: Tensor) -> float:
    if objective.class_weights is None:
        return objective.criterion.score(logits, wanted)
    weights, right = objective.weigh(wanted), objective.criterion.answers(logits) == wanted
    return ((weights * right).sum() / weights.sum()).item()


def _held_out_logits(loaded: LoadedModel, data: TrainingSet) -> tuple[Tensor, Tensor]:
    return data.held_out_logits(loaded)


def logits_on(loaded: LoadedModel, train: Data, max_length: int) -> np.ndarray:
    """The logits of a model on the rows of train, where no teacher has answered them."""
    return compute_logits(loaded, build_inputs(loaded.tokenizer, train, max_length), title="checking the original")
