"""Linear probes with a closed-form solution: ridge regression for numbers, a discriminant for many classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from probescale.probing.targets import ProbeLabels

MANY_CLASSES = 500  # with more classes a discriminant is fitted
ABSENT = 1e-3  # rows that a class without any row counts as


@dataclass(frozen=True)
class LinearFit:
    """A trained linear probe: its logits (for numbers: predictions) are features @ weights + bias."""

    weights: np.ndarray  # (hidden, columns)
    bias: np.ndarray  # (columns,)
    penalty: float  # as scikit-learn's C
    steps: int
    gap: float  # estimate of how far the loss is above its minimum, in nats
    converged: bool

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weights + self.bias


def has_closed_form(target: ProbeLabels) -> bool:
    """Whether a linear probe for these labels is solved in one step."""
    return target.kind == "number" or (target.kind == "class" and target.columns > MANY_CLASSES)


def fit_closed_form(features: np.ndarray, target: ProbeLabels, penalty: float, strength: float) -> LinearFit:
    """The probe for labels with a closed form; `strength` weighs the squared weights against the mean loss."""
    solve = _fit_ridge if target.kind == "number" else _fit_discriminant
    return solve(features, target, penalty, strength)


def _fit_ridge(features: np.ndarray, target: ProbeLabels, penalty: float, strength: float) -> LinearFit:
    """Least squares with an L2 penalty, for numbers: the exact solution."""
    values = target.values.reshape(len(target), -1)
    mean, centre = features.mean(0), values.mean(0)
    second = features.T @ features / np.float32(len(features)) - np.outer(mean, mean)
    second[np.diag_indices(len(second))] += np.float32(strength)
    cross = features.T @ (values - centre) / np.float32(len(features))
    weights = np.linalg.solve(second.astype(np.float64), cross.astype(np.float64)).astype(np.float32)
    return LinearFit(weights, (centre - mean @ weights).astype(np.float32), penalty, 1, 0.0, True)


def _fit_discriminant(features: np.ndarray, target: ProbeLabels, penalty: float, strength: float) -> LinearFit:
    """Fisher's linear discriminant: all classes share one covariance around their means; the penalty regularises it."""
    rows, hidden = features.shape
    counts = np.bincount(target.values, minlength=target.columns)
    member = csr_array((np.ones(rows, np.float32), (target.values, np.arange(rows))), (target.columns, rows))
    means = (member @ features) / np.maximum(counts, 1)[:, None].astype(np.float32)
    residuals = features - means[target.values]
    degrees = max(rows - np.count_nonzero(counts), hidden)  # classes of one row say nothing about the covariance
    covariance = (residuals.T @ residuals).astype(np.float64) / degrees
    covariance[np.diag_indices(hidden)] += strength + 1e-6
    weights = cho_solve(cho_factor(covariance), means.T.astype(np.float64))
    bias = np.log(np.maximum(counts, ABSENT) / rows) - 0.5 * np.einsum("kh,hk->k", means, weights)
    return LinearFit(weights.astype(np.float32), bias.astype(np.float32), penalty, 1, 0.0, True)
