"""The training objective: labels, and the logits and states of a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from probescale.recovery.likeliest_tokens import LikeliestTokens
from probescale.recovery.pair_lessons import PairLessons
from probescale.tasks.kinds.losses import CrossEntropy, Loss


@dataclass(frozen=True)
class Objective:
    """What every row should learn. Rows without a label learn from the teacher alone."""

    labels: Tensor  # (rows,) or (rows, columns); NaN: no label
    criterion: Loss = field(default_factory=CrossEntropy)  # of the kind of task
    class_weights: Tensor | None = None  # (classes,) of the loss on labels; None: all 1
    teacher_logits: Tensor | LikeliestTokens | None = None  # (rows, columns); NaN: the teacher did not see the row
    teacher_share: float = 1.0  # of the teacher's part in the loss of a row that has a label, too
    temperature: float = 1.0
    output_weight: float = 1.0  # of the loss on labels and teacher's logits
    states: Tensor | None = None  # (inputs, layers, hidden), the targets of the student's states
    state_weight: float = 0.0  # of the loss on states
    pairs: PairLessons | None = None  # of texts whose embeddings are learned
    pair_weight: float = 0.0  # of the loss on pairs

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """The mean loss on labels and teacher's logits, over the rows that have either."""
        rows = rows.cpu()
        labels = self.labels[rows].to(logits.device)
        labelled = has_label(labels)
        if self.teacher_logits is None:
            weights, losses = labelled.float(), self.weigh(labels) * self.criterion.of_labels(logits, labels)
        else:
            targets = self.teacher_logits[rows].to(logits.device)
            taught = ~targets.isnan().any(-1)
            share = taught.float() * torch.where(labelled, self.teacher_share, 1.0)
            weights = (taught | labelled).float()
            hard, soft = self.criterion.of_both(logits, labels, targets.nan_to_num(), self.temperature)
            losses = (1 - share) * self.weigh(labels) * hard + share * soft
        return (weights * losses).sum() / weights.sum().clamp(min=1)

    def constant_logits(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Logits of the best constant predictor for these rows, in the shape of `logits`."""
        labels = self.labels[rows.cpu()]
        targets = self.criterion.wanted(labels, logits.shape[1])
        if self.teacher_logits is not None:
            targets = torch.where(targets.isnan(), self.criterion.mean(self.teacher_logits[rows.cpu()]), targets)
        weights = torch.where(targets.isnan(), torch.nan, self.weigh(labels)[:, None])
        mean = (weights * targets).nansum(0) / weights.nansum(0).clamp(min=1e-9)
        return self.criterion.logits(mean).expand_as(logits).to(logits)

    def weigh(self, labels: Tensor) -> Tensor:
        """(rows,) how much each row's label counts; 1 for rows without a label."""
        if self.class_weights is None:
            return labels.new_ones(len(labels))
        weights = self.class_weights.to(labels.device)[labels.nan_to_num().long()]
        return torch.where(labels.isnan(), 1.0, weights)

    def count_learnable(self, rows: Tensor) -> int:
        """How many of these rows have a label or the teacher's logits. Entries of -1 are not rows."""
        rows = rows[rows >= 0].cpu()
        learnable = has_label(self.labels[rows])
        if self.teacher_logits is not None:
            learnable |= ~self.teacher_logits[rows].isnan().any(-1)
        return int(learnable.sum())

    def state_loss(self, states: Tensor, numbers: Tensor) -> Tensor:
        """Squared distance to the teacher's states relative to their squared length, averaged over all."""
        assert self.states is not None
        targets = self.states[numbers.cpu()].to(states.device)
        return ((states - targets) ** 2).sum(-1).div((targets**2).sum(-1).clamp(min=1e-6)).mean()


def has_label(labels: Tensor) -> Tensor:
    """(rows,) which rows have a label. A label may be a number or a row of numbers."""
    return ~labels.flatten(1).isnan().any(-1) if labels.ndim > 1 else ~labels.isnan()
