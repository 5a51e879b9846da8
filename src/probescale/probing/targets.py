"""Labels that a probe predicts: one class per row, several labels per row, or a number per row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp

from probescale.config import ProbeTarget


@dataclass(frozen=True)
class ProbeLabels:
    """The labels of all rows, and how logits relate to them."""

    kind: ProbeTarget
    values: np.ndarray  # class: (rows,) class indices; multi: (rows, labels) of 0 and 1; number: (rows,) or (rows, n)
    names: tuple[str, ...] = ()  # of classes or labels

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray | slice) -> ProbeLabels:
        return replace(self, values=self.values[rows])

    @property
    def columns(self) -> int:
        """Number of logits per row; two classes need only one."""
        if self.kind == "number":
            return 1 if self.values.ndim == 1 else self.values.shape[1]
        if self.kind == "class" and len(self.names) == 2:
            return 1
        return len(self.names)

    def rows_by_column(self) -> list[np.ndarray]:
        """For each column of logits, the rows that have its class or label."""
        if self.kind == "multi":
            return [np.flatnonzero(column) for column in self.values.T]
        return [np.flatnonzero(self.values == k) for k in ([1] if self.columns == 1 else range(self.columns))]

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Predicted values, of the same form as `values`, from (rows, columns) logits."""
        if self.kind == "number":
            return logits[:, 0] if self.values.ndim == 1 else logits
        if self.kind == "multi":
            return (logits > 0).astype(np.float32)
        return (logits[:, 0] > 0).astype(np.int64) if self.columns == 1 else logits.argmax(1)

    def surprisal(self, logits: np.ndarray, trained_on: int) -> np.ndarray:
        """(rows,) -log2 of the predicted probability of the true label, in bits.

        The prediction is smoothed with the uniform distribution, by 1 / (trained_on + 1): a class that the training
        rows lack gets a small probability instead of zero.
        """
        smoothing = 1 / (trained_on + 1)
        logits = logits.astype(np.float64)
        if self.kind == "multi" or self.columns == 1:
            truth = self.values.reshape(logits.shape)
            correct = expit(np.where(truth > 0, logits, -logits))
            return -np.log2((1 - smoothing) * correct + smoothing / 2).sum(1)
        log_correct = logits[np.arange(len(logits)), self.values] - logsumexp(logits, axis=1)
        return -np.log2((1 - smoothing) * np.exp(log_correct) + smoothing / len(self.names))

    def loss(self, logits: np.ndarray, trained_on: int) -> float:
        """Mean loss, by which penalties are compared: squared error for numbers, else surprisal."""
        if self.kind == "number":
            return float(np.mean((self.predict(logits) - self.values) ** 2, dtype=np.float64))
        return float(self.surprisal(logits, trained_on).mean())

    def prior_logits(self, rows: int) -> np.ndarray:
        """(rows, columns) Logits of the class frequencies (for numbers: the mean), the same in all rows."""
        if self.kind == "number":
            return np.tile(np.atleast_1d(self.values.mean(0)), (rows, 1))
        shares = self.values.mean(0) if self.kind == "multi" else np.bincount(self.values, minlength=len(self.names))
        shares = np.clip(shares / (1 if self.kind == "multi" else len(self)), 1e-12, 1 - 1e-12)
        if self.kind == "class" and self.columns == 1:
            shares = shares[1:]
        logits = np.log(shares) if self.kind == "class" and self.columns > 1 else np.log(shares / (1 - shares))
        return np.tile(logits, (rows, 1))
