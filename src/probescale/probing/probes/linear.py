"""Linear probes: L2-penalised regressions on standardised states, solved to convergence along a path of penalties.

The problem is scikit-learn's LogisticRegression (or Ridge), with the same meaning of the penalty C, and so is the
answer. It comes faster because L-BFGS works in coordinates in which the loss is nearly round: every column of the
weights is whitened by an estimate of its own second derivative, and each penalty starts from the one before it.

With hundreds of classes a regression takes minutes. There the probe is Fisher's linear discriminant, in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from probescale.probing.probes.base import Probe, probe
from probescale.probing.targets import ProbeLabels

ROUGH = 1e-4  # nats: how close to its optimum a fit must be to compare penalties
TOLERANCE = 1e-6  # nats per example: a probe has converged when its loss could fall by no more than about that
MAX_STEPS = 500
SELDOM = 1e-3  # rows that a class counts as which has none
CHUNK = 4096  # rows copied at once: memory does not grow with the data
MANY = 500  # classes: with more of them a discriminant is fitted
LARGEST_FACTORS = 2**25  # numbers; beyond it, all columns share one estimate of the second derivative

# (logits, changed in place into the derivative of the mean loss; rows of the target) -> mean loss
Loss = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Fit:
    """A trained probe: logits (or a prediction) = x @ weights + bias."""

    weights: np.ndarray  # (hidden, columns)
    bias: np.ndarray  # (columns,)
    penalty: float
    steps: int
    gap: float  # nats by which the loss could still fall, estimated
    converged: bool

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weights + self.bias


def standardise(features: np.ndarray, train: slice) -> None:
    """Mean 0 and deviation 1 on the training rows, in place. A column that is constant but for rounding becomes 0.

    Such columns are real: at the embeddings every text has the same first token. Dividing by their tiny deviation
    would blow rounding up into features.
    """
    rows = features[train]
    mean = rows.mean(0, dtype=np.float64)
    square = np.zeros(features.shape[1])
    for first in range(0, len(rows), CHUNK):
        square += (rows[first : first + CHUNK].astype(np.float64) ** 2).sum(0)
    square /= len(rows)
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    constant = deviation <= 1e-5 * np.sqrt(square) + 1e-12
    features -= mean.astype(np.float32)
    features *= np.where(constant, 0, 1 / np.where(constant, 1, deviation)).astype(np.float32)


def fit_path(
    features: np.ndarray, target: ProbeLabels, penalties: Sequence[float], judge: tuple[np.ndarray, ProbeLabels]
) -> tuple[Fit, Curvature]:
    """The penalty with the lowest loss on the judge rows, and its rough fit; also what later fits can start with.

    The loss has no steps, unlike accuracy, so that rounding in the features does not turn the choice around. Penalties
    go from strong to weak; the path ends where two weaker ones in a row were worse.
    """
    curvature = Curvature.of(features, target)
    best, lowest, start, worse = None, np.inf, None, 0
    for penalty in sorted(penalties):
        start = fit(features, target, penalty, curvature, start, ROUGH)
        loss = judge[1].loss(start(judge[0]), len(features))
        if loss < lowest:
            best, lowest, worse = start, loss, 0
        else:
            worse += 1
            if worse == 2:
                break
    assert best is not None
    return best, curvature


def fit(
    features: np.ndarray,
    target: ProbeLabels,
    penalty: float,
    curvature: Curvature | None = None,
    start: Fit | None = None,
    tolerance: float = TOLERANCE,
) -> Fit:
    """One probe on all given rows."""
    curvature = curvature or Curvature.of(features, target)
    strength = 1 / (penalty * len(features))  # of the squared weights beside the mean loss
    if target.kind == "number":
        return _ridge(features, target, penalty, strength)
    if _many(target):
        return _discriminant(features, target, penalty, strength)
    space = _Whitened(curvature, strength)
    rows, loss_of = target.values, _LOSSES[target.kind, target.columns > 1]
    gap = np.inf

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal gap
        weights, bias = space.weights(flat)
        logits = features @ weights + bias
        loss = loss_of(logits, rows) + 0.5 * strength * float(np.vdot(weights, weights))
        gradient = space.gradient((logits.T @ features).T + np.float32(strength) * weights, logits.sum(0))
        gap = 0.5 * float(gradient @ gradient)
        return loss, gradient

    def stop_when_close(intermediate_result: object) -> None:  # scipy goes by this parameter's name
        if gap <= tolerance:
            raise StopIteration

    first = space.flat(start.weights, start.bias) if start else space.flat(*curvature.nothing())
    found = minimize(
        objective, first, jac=True, method="L-BFGS-B", callback=stop_when_close,
        options={"maxiter": MAX_STEPS, "ftol": 0, "gtol": 0, "maxls": 10},
    )  # fmt: skip
    weights, bias = space.weights(found.x)
    # When float32 allows no further step, the line search ends with a gap of rounding: judged with some slack.
    return Fit(weights, bias, penalty, int(found.nit), gap, bool(gap <= 10 * tolerance))


@probe("linear")
class LinearProbe(Probe[Fit]):
    """A regression with an L2 penalty, solved to convergence."""

    def __init__(self) -> None:
        self.curvature: Curvature | None = None  # known after fit_path

    def fit_path(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalties: Sequence[float],
        judge: tuple[np.ndarray, ProbeLabels],
    ) -> Fit:
        best, self.curvature = fit_path(features, target, penalties, judge)
        return best

    def fit(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalty: float,
        start: Fit | None = None,
        *,
        rough: bool = False,
    ) -> Fit:
        return fit(features, target, penalty, self.curvature, start, ROUGH if rough else TOLERANCE)


@dataclass(frozen=True)
class Curvature:
    """Estimate of the loss's second derivative, per column: share * second moment of all rows + that of its own rows.

    Of a column k it is the second moment of the rows weighted by p_k (1 - p_k): large for rows of the class and for
    those taken for it.
    """

    matrices: np.ndarray  # (columns or 1, hidden, hidden)
    shares: np.ndarray  # (columns,) of rows that belong to the column

    @classmethod
    def of(cls, features: np.ndarray, target: ProbeLabels) -> Curvature:
        if target.kind == "number" or _many(target):  # nobody asks
            return cls(np.zeros((1, 0, 0), np.float32), np.zeros(1))
        rows, hidden = features.shape
        members = target.members()  # (columns) of row numbers
        shares = np.array([len(m) for m in members]) / rows
        whole = _gram(features) / np.float32(rows)
        if len(members) * hidden * hidden > LARGEST_FACTORS:
            return cls(0.25 * whole[None], shares)
        own = np.stack([_gram(features, m) for m in members]) / np.float32(rows)
        return cls(0.25 * (shares[:, None, None].astype(np.float32) * whole + own), shares)

    def nothing(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights zero, and the bias that gives every column its share."""
        share = np.clip(self.shares, 1e-4, 1 - 1e-4)
        bias = np.log(share) if len(share) > 1 else np.log(share / (1 - share))
        return np.zeros((self.matrices.shape[-1], len(share)), np.float32), bias.astype(np.float32)


class _Whitened:
    """Coordinates v = L^T w with L L^T = curvature + penalty, in which L-BFGS needs few steps."""

    def __init__(self, curvature: Curvature, strength: float) -> None:
        matrices = curvature.matrices.copy()
        hidden = matrices.shape[-1]
        floor = 1e-5 * np.trace(matrices, axis1=1, axis2=2) / hidden  # keeps float32 positive definite
        matrices[:, np.arange(hidden), np.arange(hidden)] += (strength + floor).astype(np.float32)[:, None]
        self.lower = np.linalg.cholesky(matrices)
        invert = lapack.strtri  # pyright: ignore[reportAttributeAccessIssue]
        self.inverse = np.stack([invert(lower, lower=1)[0] for lower in self.lower])
        self.bias_scale = np.sqrt(0.5 * np.maximum(curvature.shares, 1e-3)).astype(np.float32)
        self.shape = (len(curvature.shares), hidden + 1)

    def flat(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        inner = _times(self.lower.transpose(0, 2, 1), weights.T)
        return np.concatenate([inner, (bias * self.bias_scale)[:, None]], 1).astype(np.float64).ravel()

    def weights(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inner = flat.astype(np.float32).reshape(self.shape)
        weights = _times(self.inverse.transpose(0, 2, 1), inner[:, :-1])
        return np.ascontiguousarray(weights.T), inner[:, -1] / self.bias_scale

    def gradient(self, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
        inner = _times(self.inverse, weights.T)
        return np.concatenate([inner, (bias / self.bias_scale)[:, None]], 1).astype(np.float64).ravel()


def _gram(features: np.ndarray, members: np.ndarray | None = None) -> np.ndarray:
    """X^T X of all rows or of some, a chunk at a time where rows have to be copied."""
    if members is None:
        return features.T @ features
    total = np.zeros((features.shape[1],) * 2, np.float32)
    for first in range(0, len(members), CHUNK):
        part = features[members[first : first + CHUNK]]
        total += part.T @ part
    return total


def _times(matrices: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Each matrix times its row; (columns or 1, a, a) and (columns, a) -> (columns, a)."""
    if len(matrices) == 1:
        return rows @ matrices[0].T
    return np.matmul(matrices, rows[:, :, None])[:, :, 0]


def _sigmoid(logits: np.ndarray, rows: np.ndarray) -> float:
    """Columns on their own: two classes, or several labels at once. rows (rows,) or (rows, columns) of 0 and 1."""
    rows = rows.reshape(logits.shape)
    loss = np.logaddexp(0, logits) - rows * logits
    mean = float(loss.sum(dtype=np.float64)) / len(logits)
    np.subtract(expit(logits), rows, out=logits)
    logits /= np.float32(len(logits))
    return mean


def _softmax(logits: np.ndarray, rows: np.ndarray) -> float:
    index = np.arange(len(logits))
    logits -= logits.max(1, keepdims=True)
    picked = logits[index, rows]
    np.exp(logits, out=logits)
    total = logits.sum(1, keepdims=True)
    loss = float((np.log(total[:, 0]) - picked).mean(dtype=np.float64))
    logits /= total
    logits[index, rows] -= 1
    logits /= np.float32(len(logits))
    return loss


_LOSSES: dict[tuple[str, bool], Loss] = {
    ("class", False): _sigmoid,
    ("class", True): _softmax,
    ("multi", False): _sigmoid,
    ("multi", True): _sigmoid,
}


def _ridge(features: np.ndarray, target: ProbeLabels, penalty: float, strength: float) -> Fit:
    """The exact answer: least squares has one."""
    mean, centre = features.mean(0), target.values.mean()
    second = features.T @ features / np.float32(len(features)) - np.outer(mean, mean)
    second[np.diag_indices(len(second))] += np.float32(strength)
    cross = features.T @ (target.values - centre) / np.float32(len(features))
    weights = np.linalg.solve(second.astype(np.float64), cross.astype(np.float64)).astype(np.float32)
    return Fit(weights[:, None], np.array([centre - mean @ weights], np.float32), penalty, 1, 0.0, True)


def _many(target: ProbeLabels) -> bool:
    return target.kind == "class" and target.columns > MANY


def _discriminant(features: np.ndarray, target: ProbeLabels, penalty: float, strength: float) -> Fit:
    """Classes as clouds of one shape around their means; the penalty makes the shape rounder and larger."""
    rows, hidden = features.shape
    counts = np.bincount(target.values, minlength=target.columns)
    member = csr_array((np.ones(rows, np.float32), (target.values, np.arange(rows))), (target.columns, rows))
    means = (member @ features) / np.maximum(counts, 1)[:, None].astype(np.float32)
    apart = features - means[target.values]
    freedom = max(rows - np.count_nonzero(counts), hidden)  # classes of one row say nothing about the shape
    shape = (apart.T @ apart).astype(np.float64) / freedom
    shape[np.diag_indices(hidden)] += strength + 1e-6
    weights = cho_solve(cho_factor(shape), means.T.astype(np.float64))
    bias = np.log(np.maximum(counts, SELDOM) / rows) - 0.5 * np.einsum("kh,hk->k", means, weights)
    return Fit(weights.astype(np.float32), bias.astype(np.float32), penalty, 1, 0.0, True)
