"""Probe weights w(p,T), learned from a few measured subnetworks so that relevance predicts their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from probescale.errors import UserError
from probescale.models.subsets import Subset
from probescale.selection.strategies import sum_relevance
from probescale.utils.files import Record

Scores = Mapping[str, Sequence[float]]  # V_{p,l} of every probe p, layer 1 first
LARGEST_VALUE = 1e9  # keeps sums finite


class Calibration(Record):
    """The fitted line: value = intercept + scale * (sum of relevance over kept layers, with these weights)."""

    weights: dict[str, float]  # 0 or more; their sum is 1
    intercept: float
    scale: float
    error: float  # mean absolute leave-one-out error
    error_uniform: float  # the same error with equal weights
    error_mean: float  # the same error when the mean of the other values is predicted
    points: int
    informative: bool  # False: no probe rises with the measured values, so the weights are equal
    fitted_to: str = ""  # what the values were measured on, as far as it is known

    def predict(self, scores: Scores, subset: Subset) -> float:
        """The expected value of a subset."""
        layers = _check_scores(scores)
        if missing := sorted(self.weights.keys() - scores.keys()):
            raise UserError(
                f'there are no scores of probe "{missing[0]}"',
                field="scores",
                hint=f"give all of: {', '.join(self.weights)}",
            )
        _check_layers(subset, layers, "subset")
        sums = _sum_scores({name: scores[name] for name in self.weights}, [subset])[0]
        return float(self.intercept + self.scale * (sums @ list(self.weights.values())))


def calibrate(scores: Scores, measured: Mapping[Subset, float], fitted_to: str = "") -> Calibration:
    """Weights with which the sums of Eq. 2 come closest to the measured values (non-negative least squares).

    `fitted_to`: what the values were measured on. Normally that is dev, which is then no longer unseen.

    >>> scores = {"pos": (0.0, 1.0, 0.0), "ner": (1.0, 0.0, 2.0)}
    >>> calibration = calibrate(scores, {(1,): 0.4, (2,): 0.7, (3,): 0.5, (1, 2): 0.8})
    >>> {name: round(weight, 6) for name, weight in calibration.weights.items()}
    {'pos': 0.8, 'ner': 0.2}
    """
    _check_measured(measured, _check_scores(scores), len(scores) + 2)
    sums, values = _sum_scores(scores, list(measured)), np.array(list(measured.values()), dtype=float)
    equal = sums.mean(1, keepdims=True)
    slopes, intercept = _fit(sums, values)
    scale = slopes.sum()
    weights = slopes / scale if scale > 0 else np.full(len(scores), 1 / len(scores))
    return Calibration(
        weights=dict(zip(scores, weights.tolist(), strict=True)),
        intercept=intercept,
        scale=float(scale),
        error=_left_out_error(sums, values),
        error_uniform=_left_out_error(equal, values),
        error_mean=_left_out_error(np.zeros_like(equal), values),
        points=len(values),
        informative=bool(scale > 0),
        fitted_to=fitted_to,
    )


def _sum_scores(scores: Scores, subsets: Sequence[Subset]) -> np.ndarray:
    """X_p(S), the sum of V_{p,l} over the layers l of S: (subsets, probes)."""
    return np.array([[sum_relevance(row, kept) for row in scores.values()] for kept in subsets])


def _fit(sums: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """The slope of each sum, at least 0, and the intercept."""
    # Relative to the first subset: equal sums become exactly 0, so that rounding errors are never fitted.
    inputs, targets = sums - sums[0], values - values[0]
    slopes, _ = nnls(inputs - inputs.mean(0), targets - targets.mean())
    return slopes, float(values.mean() - sums.mean(0) @ slopes)


def _left_out_error(sums: np.ndarray, values: np.ndarray) -> float:
    """Mean absolute error where each subset is predicted from all others."""
    errors = []
    for out in range(len(values)):
        slopes, intercept = _fit(np.delete(sums, out, 0), np.delete(values, out))
        errors.append(abs(intercept + sums[out] @ slopes - values[out]))
    return float(np.mean(errors))


def _check_scores(scores: Scores) -> int:
    """The number of layers; refused where probes differ in it or a score is not finite."""
    if not scores:
        raise UserError("there are no probes", field="scores", hint="give the scores of at least one")
    layers = len(next(iter(scores.values())))
    for name, row in scores.items():
        if len(row) != layers:
            raise UserError(
                f'probe "{name}" has {len(row)} scores, and "{next(iter(scores))}" has {layers}',
                field="scores",
                hint="give one score per layer for every probe",
            )
        for layer, score in enumerate(row, 1):
            if not math.isfinite(score):
                raise UserError(
                    f'the score of probe "{name}" at layer {layer} is {score}',
                    field="scores",
                    hint="give finite scores",
                )
    return layers


def _check_measured(measured: Mapping[Subset, float], layers: int, fewest: int) -> None:
    """Refuse too few subsets, layers that do not exist, and values that are not finite."""
    if len(measured) < fewest:
        raise UserError(
            f"{len(measured)} measured subsets are too few to learn from",
            field="measured",
            hint=f"measure at least {fewest}: two more than there are probes",
        )
    for kept, value in measured.items():
        _check_layers(kept, layers, "measured")
        if not abs(value) <= LARGEST_VALUE:
            raise UserError(f"the value of layers {kept} is {value}", field="measured", hint="give finite values")


def _check_layers(kept: Subset, layers: int, field: str) -> None:
    """Refuse layers that do not exist or are listed twice."""
    if not all(1 <= layer <= layers for layer in kept) or len(set(kept)) < len(kept):
        raise UserError(
            f"{kept} are not layers of this model", field=field, hint=f"use each of the layers 1 to {layers} once"
        )
