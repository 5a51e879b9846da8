"""Linear probes: L2-penalised regressions on standardised states, solved to convergence along a path of penalties.

The problem and its solution are those of scikit-learn's LogisticRegression (or Ridge), with the same meaning of the
penalty C. It is solved faster: L-BFGS works in coordinates in which the loss is nearly round (curvature.py), and each
penalty starts from the solution of the one before it.

With hundreds of classes a regression takes minutes; a linear discriminant is fitted instead (closed_form.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from probescale.probing.probes.base import Probe, probe
from probescale.probing.probes.closed_form import LinearFit, fit_closed_form, has_closed_form
from probescale.probing.probes.curvature import CHUNK, Curvature, WhitenedSpace
from probescale.probing.targets import ProbeLabels

ROUGH = 1e-4  # nats: tolerance of fits that only compare penalties
TOLERANCE = 1e-6  # nats per example: a probe has converged when its loss could fall by no more than about that
MAX_STEPS = 500

# From logits and the target's rows to the mean loss; the logits are overwritten with its derivative.
Loss = Callable[[np.ndarray, np.ndarray], float]


def standardise(features: np.ndarray, train: slice) -> None:
    """Scale columns in place to mean 0 and deviation 1 on the training rows. Constant columns become 0.

    Constant columns do occur: at the embeddings every text has the same first token. Dividing by their tiny deviation
    would turn rounding errors into features.
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


@dataclass(frozen=True)
class WarmStart:
    """What earlier fits on the same rows, or most of them, leave to speed up the next."""

    curvature: Curvature | None = None
    fit: LinearFit | None = None


COLD = WarmStart()


def fit_path(
    features: np.ndarray, target: ProbeLabels, penalties: Sequence[float], tuning: tuple[np.ndarray, ProbeLabels]
) -> tuple[LinearFit, Curvature | None]:
    """A rough fit with the penalty that has the lowest loss on the tuning rows; and the curvature, for later fits.

    Penalties are compared by loss: unlike accuracy it is smooth, so that rounding errors do not change the choice.
    They go from strong to weak; the path ends when two weaker ones in a row are worse than the best.
    """
    curvature = None if has_closed_form(target) else Curvature.estimate(features, target)
    best, lowest, current, worse = None, np.inf, None, 0
    for penalty in sorted(penalties):
        current = fit(features, target, penalty, WarmStart(curvature, current), ROUGH)
        loss = tuning[1].loss(current(tuning[0]), len(features))
        if loss < lowest:
            best, lowest, worse = current, loss, 0
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
    warm: WarmStart = COLD,
    tolerance: float = TOLERANCE,
) -> LinearFit:
    """A linear probe trained on all given rows, until its loss is about `tolerance` above the minimum."""
    strength = 1 / (penalty * len(features))  # of the squared weights, relative to the mean loss
    if has_closed_form(target):
        return fit_closed_form(features, target, penalty, strength)
    curvature = warm.curvature or Curvature.estimate(features, target)
    space = WhitenedSpace(curvature, strength)
    rows, compute_loss = target.values, _LOSSES[target.kind, target.columns > 1]
    gap = np.inf

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal gap
        weights, bias = space.unflatten(flat)
        logits = features @ weights + bias
        loss = compute_loss(logits, rows) + 0.5 * strength * float(np.vdot(weights, weights))
        gradient = space.flatten_gradient((logits.T @ features).T + np.float32(strength) * weights, logits.sum(0))
        gap = 0.5 * float(gradient @ gradient)
        return loss, gradient

    def stop_when_close(intermediate_result: object) -> None:  # scipy requires this parameter name
        if gap <= tolerance:
            raise StopIteration

    start = (warm.fit.weights, warm.fit.bias) if warm.fit else curvature.initial_weights()
    solution = minimize(
        objective, space.flatten(*start), jac=True, method="L-BFGS-B", callback=stop_when_close,
        options={"maxiter": MAX_STEPS, "ftol": 0, "gtol": 0, "maxls": 10},
    )  # fmt: skip
    weights, bias = space.unflatten(solution.x)
    # When float32 allows no further step, the line search ends with a gap from rounding: allow for it.
    return LinearFit(weights, bias, penalty, int(solution.nit), gap, bool(gap <= 10 * tolerance))


@probe("linear")
class LinearProbe(Probe[LinearFit]):
    """A regression with an L2 penalty, solved to convergence."""

    def __init__(self) -> None:
        self.curvature: Curvature | None = None  # set by fit_path

    def fit_path(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalties: Sequence[float],
        tuning: tuple[np.ndarray, ProbeLabels],
    ) -> LinearFit:
        best, self.curvature = fit_path(features, target, penalties, tuning)
        return best

    def fit(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalty: float,
        start: LinearFit | None = None,
        *,
        rough: bool = False,
    ) -> LinearFit:
        return fit(features, target, penalty, WarmStart(self.curvature, start), ROUGH if rough else TOLERANCE)


def _sigmoid(logits: np.ndarray, rows: np.ndarray) -> float:
    """Independent columns: two classes, or several labels. `rows` is (rows,) or (rows, columns) of 0 and 1."""
    rows = rows.reshape(logits.shape)
    loss = np.logaddexp(0, logits) - rows * logits
    mean = float(loss.sum(dtype=np.float64)) / len(logits)
    np.subtract(expit(logits), rows, out=logits)
    logits /= np.float32(len(logits))
    return mean


def _softmax(logits: np.ndarray, rows: np.ndarray) -> float:
    """Exclusive classes. `rows` is (rows,) class indices."""
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
