"""Losses of a kind of task: against labels, and against a teacher's logits.

The mean of an answer is what its logits stand for: the probabilities of the classes, or the number itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

SHARPNESS, NEIGHBOURS = 0.05, 0.1  # temperature of similarities within a batch, and the weight of their part

if TYPE_CHECKING:  # torch is imported where it is used: `probescale --help` does without
    from torch import Tensor


class Loss(ABC):
    """The loss of a kind of task, against labels and against a teacher's logits."""

    @abstractmethod
    def of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(rows,) the loss of each row against its label; 0 where the label is NaN."""

    @abstractmethod
    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        """(rows,) the distance of each row to the teacher's logits."""

    def of_both(self, logits: Tensor, labels: Tensor, answers: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """(rows,) twice: the loss against labels, and the distance to the teacher's logits."""
        return self.of_labels(logits, labels), self.of_teacher(logits, answers, temperature)

    def for_first(self, dimensions: tuple[int, ...]) -> Loss:
        """The same loss, which also counts for the first so many numbers of an answer, where that has a meaning."""
        return self

    @abstractmethod
    def wanted(self, labels: Tensor, columns: int) -> Tensor:
        """(rows, columns) the mean that each label asks for; NaN where there is no label."""

    @abstractmethod
    def mean(self, logits: Tensor) -> Tensor:
        """(rows, columns) the mean that logits stand for."""

    @abstractmethod
    def logits(self, mean: Tensor) -> Tensor:
        """Logits that stand for this mean."""

    @abstractmethod
    def answers(self, logits: Tensor) -> Tensor:
        """(rows,) the label that each row of logits gives."""

    @abstractmethod
    def score(self, logits: Tensor, labels: Tensor) -> float:
        """How good answers are, as probes are scored: accuracy, or R2 for numbers. Every row has a label."""


class CrossEntropy(Loss):
    """One class per row."""

    def of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        import torch

        ignored = -100
        numbers = torch.where(labels.isnan(), ignored, labels).long()
        return torch.nn.functional.cross_entropy(logits, numbers, reduction="none", ignore_index=ignored)

    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        from torch.nn.functional import kl_div

        own, wanted = ((each / temperature).log_softmax(-1) for each in (logits, answers))
        return kl_div(own, wanted, reduction="none", log_target=True).sum(-1) * temperature**2

    def wanted(self, labels: Tensor, columns: int) -> Tensor:
        import torch

        known = ~labels.isnan()
        mean = torch.full((len(labels), columns), torch.nan)
        mean[known] = torch.nn.functional.one_hot(labels[known].long(), columns).float()
        return mean

    def mean(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def logits(self, mean: Tensor) -> Tensor:
        return mean.clamp(min=1e-6).log()

    def answers(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1).float()

    def score(self, logits: Tensor, labels: Tensor) -> float:
        return (logits.argmax(-1) == labels.long()).float().mean().item()


class BinaryCrossEntropy(Loss):
    """Several labels per row, each of which a row has or not."""

    def of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits

        known = ~labels.isnan()
        losses = binary_cross_entropy_with_logits(logits, labels.nan_to_num().to(logits), reduction="none")
        return (losses * known).mean(-1)

    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        """The divergence of every label's yes and no, as for two classes."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        own, wanted = logits / temperature, (answers / temperature).sigmoid()
        entropy = binary_cross_entropy_with_logits(answers / temperature, wanted, reduction="none")
        losses = binary_cross_entropy_with_logits(own, wanted, reduction="none")
        return (losses - entropy).mean(-1) * temperature**2

    def wanted(self, labels: Tensor, columns: int) -> Tensor:
        return labels

    def mean(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def logits(self, mean: Tensor) -> Tensor:
        return mean.clamp(1e-6, 1 - 1e-6).logit()

    def answers(self, logits: Tensor) -> Tensor:
        return (logits > 0).float()

    def score(self, logits: Tensor, labels: Tensor) -> float:
        return ((logits > 0) == (labels > 0)).float().mean().item()


class NextToken(CrossEntropy):
    """One of many thousand tokens per row. A teacher answers with its likeliest tokens: ids, then log-probabilities."""

    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        return _distance_to_likeliest(logits.log_softmax(-1), answers)

    def of_both(self, logits: Tensor, labels: Tensor, answers: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """With one softmax for both: logits of a vocabulary are what fills the memory."""
        import torch

        own = logits.log_softmax(-1)
        hard = -own.gather(-1, labels.nan_to_num().long().unsqueeze(-1)).squeeze(-1)
        return torch.where(labels.isnan(), 0.0, hard), _distance_to_likeliest(own, answers)


def _distance_to_likeliest(own: Tensor, answers: Tensor) -> Tensor:
    """(rows,) KL divergence from a teacher's likeliest tokens; all others count as one."""
    ids, wanted = answers.chunk(2, -1)  # (rows, likeliest) each
    got = own.gather(-1, ids.long())
    rest_wanted, rest_got = (1 - each.exp().sum(-1, keepdim=True) for each in (wanted, got))
    wanted, got = (_append_rest(each, rest) for each, rest in ((wanted, rest_wanted), (got, rest_got)))
    return (wanted.exp() * (wanted - got)).sum(-1)


def _append_rest(likeliest: Tensor, rest: Tensor) -> Tensor:
    import torch

    return torch.cat([likeliest, rest.clamp(min=1e-6).log()], -1)


class EmbeddingDistance(Loss):
    """One vector per row, near to the teacher's, with the teacher's similarities to the other rows of the batch.

    `first`: with so many of their first numbers alone, vectors have to have these similarities as well (Matryoshka).
    """

    def __init__(self, first: tuple[int, ...] = ()) -> None:
        self.first = first

    def for_first(self, dimensions: tuple[int, ...]) -> Loss:
        return EmbeddingDistance(dimensions)

    def of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        return logits.new_zeros(len(logits))

    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        """One minus the cosine, and the divergence of the softmax of similarities, which makes neighbours agree."""
        from torch.nn.functional import cosine_similarity, kl_div

        real, widths = _similarities(answers), (logits.shape[-1], *self.first)
        found = [_similarities(logits[:, :width]) for width in widths]
        apart = sum(kl_div(own, real, reduction="none", log_target=True).sum(-1) for own in found)
        return 1 - cosine_similarity(logits, answers, dim=-1) + NEIGHBOURS * apart

    def wanted(self, labels: Tensor, columns: int) -> Tensor:
        return labels[:, None].expand(-1, columns)

    def mean(self, logits: Tensor) -> Tensor:
        return logits

    def logits(self, mean: Tensor) -> Tensor:
        return mean

    def answers(self, logits: Tensor) -> Tensor:
        return logits.clone()

    def score(self, logits: Tensor, labels: Tensor) -> float:
        spread = ((labels - labels.mean(0)) ** 2).sum().clamp(min=1e-9)
        return 1 - (((logits - labels) ** 2).sum() / spread).item()


def _similarities(vectors: Tensor) -> Tensor:
    """(rows, rows) the log-probabilities with which each row finds the others of its batch, by their cosines."""
    from torch.nn.functional import normalize

    unit = normalize(vectors, dim=-1)
    return ((unit @ unit.T) / SHARPNESS).fill_diagonal_(-1e4).log_softmax(-1)


class SquaredError(Loss):
    """One number per row."""

    def of_labels(self, logits: Tensor, labels: Tensor) -> Tensor:
        import torch

        return torch.where(labels.isnan(), 0.0, (logits[:, 0] - labels.nan_to_num()) ** 2)

    def of_teacher(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        return (logits[:, 0] - answers[:, 0]) ** 2

    def wanted(self, labels: Tensor, columns: int) -> Tensor:
        return labels[:, None].expand(-1, columns)

    def mean(self, logits: Tensor) -> Tensor:
        return logits

    def logits(self, mean: Tensor) -> Tensor:
        return mean

    def answers(self, logits: Tensor) -> Tensor:
        return logits[:, 0]

    def score(self, logits: Tensor, labels: Tensor) -> float:
        error = ((logits[:, 0] - labels) ** 2).mean()
        return 1 - (error / labels.var(correction=0).clamp(min=1e-9)).item()
