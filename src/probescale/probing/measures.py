"""Accuracy, F1, information and selectivity on held-out rows, with intervals.

Each measure is a function of sums over rows, so that all bootstrap draws are one matrix product. Rows of one sentence
are not independent and are drawn together. A share of right answers has the exact interval of `share_interval`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from probescale.probing.targets import ProbeLabels
from probescale.tasks.intervals import share_interval
from probescale.tasks.spans import count_spans, is_spans

DRAWS = 1000  # of the bootstrap
KEPT_DRAWS = 100  # written to the scores, to tell how certain a selection is


@dataclass(frozen=True)
class BootstrapEstimate:
    """A value with its 95 % interval over the held-out rows, and what it is in bootstrap draws of them."""

    value: float
    low: float
    high: float
    draws: tuple[float, ...] = ()  # the value in the first KEPT_DRAWS draws


@dataclass(frozen=True)
class HeldOutPredictions:
    """What a probe predicts on the held-out rows."""

    truth: ProbeLabels
    predicted: np.ndarray
    saved: np.ndarray  # (rows,) bits saved compared with class frequencies alone; numbers: squared error saved
    control: tuple[ProbeLabels, np.ndarray] | None = None  # true labels and predictions of the control task


class Resampling:
    """Bootstrap draws of the held-out sentences, the same for every layer and measure."""

    def __init__(self, groups: np.ndarray, seed: int) -> None:
        _, self.unit = np.unique(groups, return_inverse=True)
        self.units = int(self.unit.max()) + 1
        rng = np.random.default_rng(seed)
        self.weights = np.empty((DRAWS, self.units), np.uint16)  # how often each sentence is drawn
        for draw in self.weights:
            draw[:] = np.bincount(rng.integers(0, self.units, self.units), minlength=self.units)

    def estimate(self, rows: np.ndarray, value: Callable[[np.ndarray], np.ndarray]) -> BootstrapEstimate:
        """Estimate `value`, a function of the column sums of `rows` (rows, sums); each draw gives other sums."""
        sums = self._sum_units(rows)
        parts = np.array_split(
            self.weights, max(1, self.weights.size // 2**20)
        )  # converted to floats in parts, to save memory
        draws = value(np.concatenate([part.astype(np.float64) @ sums for part in parts]))
        low, high = np.nanquantile(draws, (0.025, 0.975))
        return BootstrapEstimate(float(value(sums.sum(0))), float(low), float(high), tuple(draws[:KEPT_DRAWS].tolist()))

    def estimate_share(self, rows: np.ndarray) -> BootstrapEstimate:
        """Estimate the share of right answers, from (rows, 2) right and all answers."""
        low, high = share_interval(*self._sum_units(rows).T)
        return replace(self.estimate(rows, _ratio), low=low, high=high)

    def _sum_units(self, rows: np.ndarray) -> np.ndarray:
        """(sentences, sums) of (rows, sums)."""
        sums = np.zeros((self.units, rows.shape[1]))
        np.add.at(sums, self.unit, rows)
        return sums


def measure(predictions: HeldOutPredictions, resampling: Resampling) -> dict[str, BootstrapEstimate]:
    """Estimates of accuracy, f1, information, selectivity and control, where the kind of label defines them."""
    truth, ones = predictions.truth, np.ones(len(predictions.truth))
    hits = _hits(truth, predictions.predicted)
    measures = {"accuracy": _estimate_accuracy(truth, hits, resampling)}
    if truth.kind == "number":
        missed = _sum_columns((truth.values - predictions.predicted) ** 2) + 1e-12  # avoids division by 0
        errors = np.stack([missed, predictions.saved], 1)
        measures["information"] = resampling.estimate(errors, lambda s: 0.5 * np.log2(1 + s[..., 1] / s[..., 0]))
    else:
        measures["f1"] = resampling.estimate(*_f1_sums(truth, predictions.predicted, resampling))
        bits = np.stack([predictions.saved, ones], 1)
        measures["information"] = resampling.estimate(bits, _ratio)
    if predictions.control is not None:
        control, width = _hits(*predictions.control), hits.shape[1]
        value = _accuracy(truth)
        measures["selectivity"] = resampling.estimate(
            np.concatenate([hits, control], 1), lambda s: value(s[..., :width]) - value(s[..., width:])
        )
        measures["control"] = _estimate_accuracy(truth, control, resampling)
    return measures


def _estimate_accuracy(truth: ProbeLabels, hits: np.ndarray, resampling: Resampling) -> BootstrapEstimate:
    number = truth.kind == "number"
    return resampling.estimate(hits, _accuracy(truth)) if number else resampling.estimate_share(hits)


def _ratio(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def _hits(truth: ProbeLabels, predicted: np.ndarray) -> np.ndarray:
    """(rows, sums) Columns whose sums give the accuracy (for numbers: R2)."""
    if truth.kind == "number":
        y = truth.values.astype(np.float64)
        missed = _sum_columns((y - predicted) ** 2)
        if y.ndim > 1:  # of vectors, the distance from their mean in all columns together
            return np.stack([missed, np.zeros(len(y)), _sum_columns((y - y.mean(0)) ** 2), np.ones(len(y))], 1)
        return np.stack([missed, y, y**2, np.ones(len(y))], 1)
    right = truth.values == predicted
    return np.stack([right if right.ndim == 1 else right.mean(1), np.ones(len(right))], 1)


def _sum_columns(values: np.ndarray) -> np.ndarray:
    """(rows,) of numbers or of vectors."""
    return values.reshape(len(values), -1).sum(1)


def _accuracy(truth: ProbeLabels) -> Callable[[np.ndarray], np.ndarray]:
    if truth.kind != "number":
        return _ratio
    return lambda s: 1 - s[..., 0] / np.maximum(s[..., 2] - s[..., 1] ** 2 / s[..., 3], 1e-12)


def _f1_sums(
    truth: ProbeLabels, predicted: np.ndarray, resampling: Resampling
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Columns to sum, and the function from their sums to F1: by entity for spans, else macro-averaged."""
    if is_spans(truth.names):
        return _count_entities(truth, predicted, resampling.unit), lambda s: _compute_f1(
            s[..., 0], s[..., 1], s[..., 2]
        )
    # Of thousands of classes few occur; the others do not count.
    classes = np.arange(len(truth.names)) if truth.kind == "multi" else np.union1d(truth.values, predicted)
    gold = truth.values if truth.kind == "multi" else truth.values[:, None] == classes
    guesses = predicted if truth.kind == "multi" else predicted[:, None] == classes
    sums = np.concatenate([gold * guesses, guesses, gold], 1).astype(np.float64)
    count = len(classes)

    def macro(s: np.ndarray) -> np.ndarray:
        hit, guessed, real = s[..., :count], s[..., count : 2 * count], s[..., 2 * count :]
        present = guessed + real > 0  # as in scikit-learn: classes that occur among true or predicted labels
        return (_compute_f1(hit, guessed, real) * present).sum(-1) / np.maximum(present.sum(-1), 1)

    return sums, macro


def _compute_f1(hit: np.ndarray, guessed: np.ndarray, real: np.ndarray) -> np.ndarray:
    return 2 * hit / np.maximum(guessed + real, 1e-12)


def _count_entities(truth: ProbeLabels, predicted: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(rows, 3) Correct, predicted and true entities, counted in the first row of their sentence."""
    names = np.array(truth.names)
    sums = np.zeros((len(truth), 3))
    for sentence in np.unique(unit):
        rows = np.flatnonzero(unit == sentence)
        sums[rows[0]] = count_spans(names[truth.values[rows]].tolist(), names[predicted[rows]].tolist())
    return sums
