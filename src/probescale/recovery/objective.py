"""What a model is trained towards: labels, and the answers and states of a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from probescale.tasks.kinds.losses import CrossEntropy, Loss


@dataclass(frozen=True)
class Objective:
    """Rows without a label learn from the teacher alone."""

    labels: Tensor  # (rows,) NaN: nobody knows
    criterion: Loss = field(default_factory=CrossEntropy)  # of the kind of task
    answers: Tensor | None = None  # (rows, classes) the teacher's logits; NaN: it was not asked
    soft: float = 1.0  # share of the teacher's answers where there is a label, too
    temperature: float = 1.0
    answer_weight: float = 1.0  # of labels and answers beside the states
    states: Tensor | None = None  # (inputs, layers, hidden) what the student's layers should come near to
    state_weight: float = 0.0

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """The mean over the rows that count."""
        rows = rows.cpu()
        labels = self.labels[rows].to(logits.device)
        labelled, hard = known(labels), self.criterion.of_labels(logits, labels)
        weights, losses = labelled.float(), hard
        if self.answers is not None:
            answers = self.answers[rows].to(logits.device)
            taught = ~answers.isnan().any(-1)
            share = taught.float() * torch.where(labelled, self.soft, 1.0)
            weights = (taught | labelled).float()
            soft = self.criterion.of_teacher(logits, answers.nan_to_num(), self.temperature)
            losses = (1 - share) * hard + share * soft
        return (weights * losses).sum() / weights.sum().clamp(min=1)

    def constant(self, logits: Tensor, rows: Tensor) -> Tensor:
        """The one answer that is nearest to all of them, in place of such logits."""
        wanted = self.criterion.wanted(self.labels[rows.cpu()], logits.shape[1])
        if self.answers is not None:
            wanted = torch.where(wanted.isnan(), self.criterion.mean(self.answers[rows.cpu()]), wanted)
        return self.criterion.logits(wanted.nanmean(0)).expand_as(logits).to(logits)

    def counted(self, rows: Tensor) -> int:
        """How many of these rows (-1: none) there is anything to learn for."""
        rows = rows[rows >= 0].cpu()
        counted = known(self.labels[rows])
        if self.answers is not None:
            counted |= ~self.answers[rows].isnan().any(-1)
        return int(counted.sum())

    def state_loss(self, states: Tensor, numbers: Tensor) -> Tensor:
        """The squared distance to the teacher's states as a share of their squared length; the mean over all."""
        assert self.states is not None
        wanted = self.states[numbers.cpu()].to(states.device)
        return ((states - wanted) ** 2).sum(-1).div((wanted**2).sum(-1).clamp(min=1e-6)).mean()


def known(labels: Tensor) -> Tensor:
    """(rows,) which rows have a label; a label may be a number or a row of them."""
    return ~labels.flatten(1).isnan().any(-1) if labels.ndim > 1 else ~labels.isnan()
