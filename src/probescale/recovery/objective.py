"""What a model is trained towards: labels, and the answers and states of a teacher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Objective:
    """Rows without a label learn from the teacher alone."""

    labels: Tensor  # (rows,) NaN: nobody knows
    quantity: bool = False  # regression: labels and answers are numbers, not classes
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
        labelled, hard = ~labels.isnan(), self._hard(logits, labels)
        weights, losses = labelled.float(), hard
        if self.answers is not None:
            answers = self.answers[rows].to(logits.device)
            taught = ~answers.isnan().any(-1)
            share = taught.float() * torch.where(labelled, self.soft, 1.0)
            weights = (taught | labelled).float()
            losses = (1 - share) * hard + share * self._soft(logits, answers.nan_to_num())
        return (weights * losses).sum() / weights.sum().clamp(min=1)

    def constant(self, logits: Tensor, rows: Tensor) -> Tensor:
        """The one answer that is nearest to all of them, in place of such logits."""
        labels = self.labels[rows.cpu()]
        known = ~labels.isnan()
        wanted = torch.full(logits.shape, torch.nan)
        if self.quantity:
            wanted[known, 0] = labels[known]
        else:
            wanted[known] = functional.one_hot(labels[known].long(), logits.shape[1]).float()
        if self.answers is not None:
            answers = self.answers[rows.cpu()]
            wanted = torch.where(wanted.isnan(), answers if self.quantity else answers.softmax(-1), wanted)
        mean = wanted.nanmean(0)
        return (mean if self.quantity else mean.clamp(min=1e-6).log()).expand_as(logits).to(logits)

    def counted(self, rows: Tensor) -> int:
        """How many of these rows (-1: none) there is anything to learn for."""
        rows = rows[rows >= 0].cpu()
        known = ~self.labels[rows].isnan()
        if self.answers is not None:
            known |= ~self.answers[rows].isnan().any(-1)
        return int(known.sum())

    def _hard(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Where there is no label: 0."""
        if self.quantity:
            return torch.where(labels.isnan(), 0.0, (logits[:, 0] - labels.nan_to_num()) ** 2)
        numbers = torch.where(labels.isnan(), -100, labels).long()
        return functional.cross_entropy(logits, numbers, reduction="none", ignore_index=-100)

    def _soft(self, logits: Tensor, answers: Tensor) -> Tensor:
        if self.quantity:
            return (logits[:, 0] - answers[:, 0]) ** 2
        mine, wanted = (each / self.temperature for each in (logits, answers))
        apart = functional.kl_div(mine.log_softmax(-1), wanted.log_softmax(-1), reduction="none", log_target=True)
        return apart.sum(-1) * self.temperature**2

    def state_loss(self, states: Tensor, numbers: Tensor) -> Tensor:
        """The squared distance to the teacher's states as a share of their squared length; the mean over all."""
        assert self.states is not None
        wanted = self.states[numbers.cpu()].to(states.device)
        return ((states - wanted) ** 2).sum(-1).div((wanted**2).sum(-1).clamp(min=1e-6)).mean()
