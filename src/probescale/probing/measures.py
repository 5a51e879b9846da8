"""What a probe's answers on held-out rows say: each measure is a function of sums, so that resampling is one product.

Rows of one sentence are drawn together: they are not independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probescale.probing.targets import ProbeLabels
from probescale.tasks.spans import count_spans, is_spans

DRAWS = 1000
KEPT_DRAWS = 100


@dataclass(frozen=True)
class BootstrapEstimate:
    """A value with its 95 % bootstrap interval over the held-out rows."""

    value: float
    low: float
    high: float
    drawn: tuple[float, ...] = ()  # what it is in the first draws, to see how sure a selection is


@dataclass(frozen=True)
class HeldOutPredictions:
    """A probe on the held-out rows."""

    truth: ProbeLabels
    predicted: np.ndarray
    saved: np.ndarray  # (rows,) bits that the probe saves over knowing the shares alone; numbers: squared errors saved
    control: tuple[ProbeLabels, np.ndarray] | None = None  # the control task's truth and its probe's predictions


class Resampling:
    """The same draws of the held-out sentences for every layer and measure."""

    def __init__(self, groups: np.ndarray, seed: int) -> None:
        _, self.unit = np.unique(groups, return_inverse=True)
        self.units = int(self.unit.max()) + 1
        rng = np.random.default_rng(seed)
        self.weights = np.empty((DRAWS, self.units), np.uint16)  # how often each unit is drawn
        for draw in self.weights:
            draw[:] = np.bincount(rng.integers(0, self.units, self.units), minlength=self.units)

    def estimate(self, rows: np.ndarray, value: Callable[[np.ndarray], np.ndarray]) -> BootstrapEstimate:
        """rows (rows, sums) are added up, over all or over a draw, and given to `value`."""
        sums = np.zeros((self.units, rows.shape[1]))
        np.add.at(sums, self.unit, rows)
        parts = np.array_split(self.weights, max(1, self.weights.size // 2**20))  # as floats, a part at a time
        drawn = value(np.concatenate([part.astype(np.float64) @ sums for part in parts]))
        low, high = np.nanquantile(drawn, (0.025, 0.975))
        return BootstrapEstimate(float(value(sums.sum(0))), float(low), float(high), tuple(drawn[:KEPT_DRAWS].tolist()))


def measure(answers: HeldOutPredictions, resampling: Resampling) -> dict[str, BootstrapEstimate]:
    """accuracy, f1, information and selectivity, as far as they are defined for the kind of target."""
    truth, ones = answers.truth, np.ones(len(answers.truth))
    hits = _hits(truth, answers.predicted)
    found = {"accuracy": resampling.estimate(hits, _accuracy(truth))}
    if truth.kind == "number":
        errors = np.stack([(truth.values - answers.predicted) ** 2 + 1e-12, answers.saved], 1)  # never divide by 0
        found["information"] = resampling.estimate(errors, lambda s: 0.5 * np.log2(1 + s[..., 1] / s[..., 0]))
    else:
        found["f1"] = resampling.estimate(*_f1(truth, answers.predicted, resampling))
        bits = np.stack([answers.saved, ones], 1)
        found["information"] = resampling.estimate(bits, _ratio)
    if answers.control is not None:
        control, width = _hits(*answers.control), hits.shape[1]
        value = _accuracy(truth)
        found["selectivity"] = resampling.estimate(
            np.concatenate([hits, control], 1), lambda s: value(s[..., :width]) - value(s[..., width:])
        )
        found["control"] = resampling.estimate(control, value)
    return found


def _ratio(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def _hits(truth: ProbeLabels, predicted: np.ndarray) -> np.ndarray:
    """Sums that accuracy (of numbers: R2) is made of."""
    if truth.kind == "number":
        y = truth.values.astype(np.float64)
        return np.stack([(y - predicted) ** 2, y, y**2, np.ones(len(y))], 1)
    right = truth.values == predicted
    return np.stack([right if right.ndim == 1 else right.mean(1), np.ones(len(right))], 1)


def _accuracy(truth: ProbeLabels) -> Callable[[np.ndarray], np.ndarray]:
    if truth.kind != "number":
        return _ratio
    return lambda s: 1 - s[..., 0] / np.maximum(s[..., 2] - s[..., 1] ** 2 / s[..., 3], 1e-12)


def _f1(
    truth: ProbeLabels, predicted: np.ndarray, resampling: Resampling
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    if is_spans(truth.names):
        return _entities(truth, predicted, resampling.unit), lambda s: _f1_of(s[..., 0], s[..., 1], s[..., 2])
    # Of thousands of classes few occur, and the others count nothing.
    classes = np.arange(len(truth.names)) if truth.kind == "multi" else np.union1d(truth.values, predicted)
    gold = truth.values if truth.kind == "multi" else truth.values[:, None] == classes
    guess = predicted if truth.kind == "multi" else predicted[:, None] == classes
    sums = np.concatenate([gold * guess, guess, gold], 1).astype(np.float64)
    count = len(classes)

    def macro(s: np.ndarray) -> np.ndarray:
        hit, guessed, real = s[..., :count], s[..., count : 2 * count], s[..., 2 * count :]
        here = guessed + real > 0  # as scikit-learn: classes that occur in the truth or among the answers
        return (_f1_of(hit, guessed, real) * here).sum(-1) / np.maximum(here.sum(-1), 1)

    return sums, macro


def _f1_of(hit: np.ndarray, guessed: np.ndarray, real: np.ndarray) -> np.ndarray:
    return 2 * hit / np.maximum(guessed + real, 1e-12)


def _entities(truth: ProbeLabels, predicted: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Right, guessed and real entities, put on the first row of their sentence."""
    names = np.array(truth.names)
    sums = np.zeros((len(truth), 3))
    for sentence in np.unique(unit):
        rows = np.flatnonzero(unit == sentence)
        sums[rows[0]] = count_spans(names[truth.values[rows]].tolist(), names[predicted[rows]].tolist())
    return sums
