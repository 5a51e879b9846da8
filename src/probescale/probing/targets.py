"""What a probe predicts: one class a row, several labels a row, or a number."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp

from probescale.config import ProbeTarget


@dataclass(frozen=True)
class ProbeLabels:
    kind: ProbeTarget
    values: np.ndarray  # class: (rows,) numbers; multi: (rows, labels) of 0 and 1; number: (rows,)
    names: tuple[str, ...] = ()  # of classes or labels

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray | slice) -> ProbeLabels:
        return replace(self, values=self.values[rows])

    @property
    def columns(self) -> int:
        """Logits that a probe gives: two classes need one."""
        if self.kind == "number" or (self.kind == "class" and len(self.names) == 2):
            return 1
        return len(self.names)

    def members(self) -> list[np.ndarray]:
        """The rows that belong to each column."""
        if self.kind == "multi":
            return [np.flatnonzero(column) for column in self.values.T]
        return [np.flatnonzero(self.values == k) for k in ([1] if self.columns == 1 else range(self.columns))]

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """Values of the same kind, from (rows, columns) logits."""
        if self.kind == "number":
            return logits[:, 0]
        if self.kind == "multi":
            return (logits > 0).astype(np.float32)
        return (logits[:, 0] > 0).astype(np.int64) if self.columns == 1 else logits.argmax(1)

    def surprise(self, logits: np.ndarray, trained_on: int) -> np.ndarray:
        """-log2 of the probability given to the truth, (rows,), in bits.

        A grain of the uniform distribution is mixed in, one part in trained_on + 1: a class that the training rows did
        not have gets a small probability and not zero.
        """
        grain = 1 / (trained_on + 1)
        logits = logits.astype(np.float64)
        if self.kind == "multi" or self.columns == 1:
            truth = self.values.reshape(logits.shape)
            right = expit(np.where(truth > 0, logits, -logits))
            return -np.log2((1 - grain) * right + grain / 2).sum(1)
        log_right = logits[np.arange(len(logits)), self.values] - logsumexp(logits, axis=1)
        return -np.log2((1 - grain) * np.exp(log_right) + grain / len(self.names))

    def loss(self, logits: np.ndarray, trained_on: int) -> float:
        """What penalties are judged by."""
        if self.kind == "number":
            return float(np.mean((logits[:, 0] - self.values) ** 2, dtype=np.float64))
        return float(self.surprise(logits, trained_on).mean())

    def prior(self, rows: int) -> np.ndarray:
        """Logits (or the mean) that know only how often each value occurs here, the same for all rows."""
        if self.kind == "number":
            return np.full((rows, 1), self.values.mean())
        shares = self.values.mean(0) if self.kind == "multi" else np.bincount(self.values, minlength=len(self.names))
        shares = np.clip(shares / (1 if self.kind == "multi" else len(self)), 1e-12, 1 - 1e-12)
        if self.kind == "class" and self.columns == 1:
            shares = shares[1:]
        one = np.log(shares) if self.kind == "class" and self.columns > 1 else np.log(shares / (1 - shares))
        return np.tile(one, (rows, 1))
