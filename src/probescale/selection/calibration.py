"""Probe weights w(p,T) learned from a few measured subnetworks, so that relevance predicts what is measured."""

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
LARGEST = 1e9  # of a value, so that sums stay finite


class Calibration(Record):
    """value ~ intercept + scale * (sum over kept layers of relevance under these weights)."""

    weights: dict[str, float]  # 0 or more, 1 together
    intercept: float
    scale: float
    error: float  # mean absolute error for a subset left out
    error_uniform: float  # the same with equal weights
    error_mean: float  # the same with the mean of the others
    points: int
    informative: bool  # False: no probe rises with what was measured, so the weights are equal

    def predict(self, scores: Scores, subset: Subset) -> float:
        """The value that a subset is expected to have."""
        layers = _check_scores(scores)
        if missing := sorted(self.weights.keys() - scores.keys()):
            raise UserError(
                f'there are no scores of probe "{missing[0]}"',
                field="scores",
                hint=f"give all of: {', '.join(self.weights)}",
            )
        _check_layers(subset, layers, "subset")
        sums = _sums({name: scores[name] for name in self.weights}, [subset])[0]
        return float(self.intercept + self.scale * (sums @ list(self.weights.values())))


def calibrate(scores: Scores, measured: Mapping[Subset, float]) -> Calibration:
    """The weights under which the sums of Eq. 2 come nearest to the measured values.

    >>> scores = {"pos": (0.0, 1.0, 0.0), "ner": (1.0, 0.0, 2.0)}
    >>> found = calibrate(scores, {(1,): 0.4, (2,): 0.7, (3,): 0.5, (1, 2): 0.8})
    >>> {name: round(weight, 6) for name, weight in found.weights.items()}
    {'pos': 0.8, 'ner': 0.2}
    """
    _check_measured(measured, _check_scores(scores), len(scores) + 2)
    sums, values = _sums(scores, list(measured)), np.array(list(measured.values()), dtype=float)
    equal = sums.mean(1, keepdims=True)
    rises, intercept = _fit(sums, values)
    scale = rises.sum()
    weights = rises / scale if scale > 0 else np.full(len(scores), 1 / len(scores))
    return Calibration(
        weights=dict(zip(scores, weights.tolist(), strict=True)),
        intercept=intercept,
        scale=float(scale),
        error=_left_out_error(sums, values),
        error_uniform=_left_out_error(equal, values),
        error_mean=_left_out_error(np.zeros_like(equal), values),
        points=len(values),
        informative=bool(scale > 0),
    )


def _sums(scores: Scores, subsets: Sequence[Subset]) -> np.ndarray:
    """X_p(S), the sum of V_{p,l} over the layers l of S: (subsets, probes)."""
    return np.array([[sum_relevance(row, kept) for row in scores.values()] for kept in subsets])


def _fit(sums: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """What each sum adds to the value, never less than 0, and the value without them."""
    # Counted from the first subset: what is the same everywhere is then exactly 0, and rounding is never fitted.
    above, gained = sums - sums[0], values - values[0]
    rises, _ = nnls(above - above.mean(0), gained - gained.mean())
    return rises, float(values.mean() - sums.mean(0) @ rises)


def _left_out_error(sums: np.ndarray, values: np.ndarray) -> float:
    """Mean absolute error where each subset in turn is predicted from all the others."""
    errors = []
    for out in range(len(values)):
        rises, intercept = _fit(np.delete(sums, out, 0), np.delete(values, out))
        errors.append(abs(intercept + sums[out] @ rises - values[out]))
    return float(np.mean(errors))


def _check_scores(scores: Scores) -> int:
    """The number of layers, the same for all probes."""
    if not scores:
        raise UserError("there are no probes", field="scores", hint="give the scores of at least one")
    layers = len(next(iter(scores.values())))
    for name, row in scores.items():
        if len(row) != layers:
            raise UserError(
                f'probe "{name}" has {len(row)} scores, and "{next(iter(scores))}" has {layers}',
                field="scores",
                hint="give one score a layer for every probe",
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
    """Enough subsets of these layers, each with a number."""
    if len(measured) < fewest:
        raise UserError(
            f"{len(measured)} measured subsets are too few to learn from",
            field="measured",
            hint=f"measure at least {fewest}: two more than there are probes",
        )
    for kept, value in measured.items():
        _check_layers(kept, layers, "measured")
        if not abs(value) <= LARGEST:
            raise UserError(f"the value of layers {kept} is {value}", field="measured", hint="give finite values")


def _check_layers(kept: Subset, layers: int, field: str) -> None:
    """Layers that there are, none of them twice."""
    if not all(1 <= layer <= layers for layer in kept) or len(set(kept)) < len(kept):
        raise UserError(
            f"{kept} are not layers of this model", field=field, hint=f"use each of the layers 1 to {layers} once"
        )
