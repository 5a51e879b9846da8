"""Curvature of a probe's loss, and coordinates that it makes nearly round, in which L-BFGS converges in few steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from probescale.probing.targets import ProbeLabels

CHUNK = 4096  # rows copied at a time: memory does not grow with the data
LARGEST_FACTORS = 2**25  # numbers; beyond it, all columns share one estimate of the second derivative


@dataclass(frozen=True)
class Curvature:
    """Estimate of the loss's second derivative by the weights, per column.

    The exact one for column k is the second moment of the rows weighted by p_k (1 - p_k), which is large for rows of
    the class and for rows confused with it. The estimate is share * second moment of all rows + that of the
    class's rows.
    """

    matrices: np.ndarray  # (columns or 1, hidden, hidden)
    shares: np.ndarray  # (columns,) share of rows that have the column's class or label

    @classmethod
    def estimate(cls, features: np.ndarray, target: ProbeLabels) -> Curvature:
        rows, hidden = features.shape
        members = target.rows_by_column()
        shares = np.array([len(m) for m in members]) / rows
        overall = _gram(features) / np.float32(rows)
        if len(members) * hidden * hidden > LARGEST_FACTORS:
            return cls(0.25 * overall[None], shares)
        own = np.stack([_gram(features, m) for m in members]) / np.float32(rows)
        return cls(0.25 * (shares[:, None, None].astype(np.float32) * overall + own), shares)

    def initial_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Zero weights, and the bias that predicts every column's share."""
        share = np.clip(self.shares, 1e-4, 1 - 1e-4)
        bias = np.log(share) if len(share) > 1 else np.log(share / (1 - share))
        return np.zeros((self.matrices.shape[-1], len(share)), np.float32), bias.astype(np.float32)


class WhitenedSpace:
    """Coordinates v = L^T w with L L^T = curvature + penalty, in which L-BFGS needs few steps.

    A flat vector holds weights and bias in these coordinates, as the optimizer sees them.
    """

    def __init__(self, curvature: Curvature, strength: float) -> None:
        matrices = curvature.matrices.copy()
        hidden = matrices.shape[-1]
        floor = 1e-5 * np.trace(matrices, axis1=1, axis2=2) / hidden  # keeps the matrices positive definite in float32
        matrices[:, np.arange(hidden), np.arange(hidden)] += (strength + floor).astype(np.float32)[:, None]
        self.lower = np.linalg.cholesky(matrices)
        invert = lapack.strtri  # pyright: ignore[reportAttributeAccessIssue]
        self.inverse = np.stack([invert(lower, lower=1)[0] for lower in self.lower])
        self.bias_scale = np.sqrt(0.5 * np.maximum(curvature.shares, 1e-3)).astype(np.float32)
        self.shape = (len(curvature.shares), hidden + 1)

    def flatten(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """The flat vector of these weights (hidden, columns) and bias (columns,)."""
        inner = _multiply(self.lower.transpose(0, 2, 1), weights.T)
        return np.concatenate([inner, (bias * self.bias_scale)[:, None]], 1).astype(np.float64).ravel()

    def unflatten(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (hidden, columns) and bias (columns,) of a flat vector."""
        inner = flat.astype(np.float32).reshape(self.shape)
        weights = _multiply(self.inverse.transpose(0, 2, 1), inner[:, :-1])
        return np.ascontiguousarray(weights.T), inner[:, -1] / self.bias_scale

    def flatten_gradient(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """The gradient by a flat vector, from the gradients by weights and bias."""
        inner = _multiply(self.inverse, weights.T)
        return np.concatenate([inner, (bias / self.bias_scale)[:, None]], 1).astype(np.float64).ravel()


def _gram(features: np.ndarray, members: np.ndarray | None = None) -> np.ndarray:
    """X^T X of all rows, or of some of them, which are copied a chunk at a time."""
    if members is None:
        return features.T @ features
    total = np.zeros((features.shape[1],) * 2, np.float32)
    for first in range(0, len(members), CHUNK):
        part = features[members[first : first + CHUNK]]
        total += part.T @ part
    return total


def _multiply(matrices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Each matrix times its row; (columns or 1, a, a) and (columns, a) -> (columns, a)."""
    if len(matrices) == 1:
        return rows @ matrices[0].T
    return np.matmul(matrices, rows[:, :, None])[:, :, 0]
