"""Probe weights learned from measured subnetworks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from probescale.errors import UserError
from probescale.selection.calibration import Calibration, calibrate

LAYERS = 8


def probes(*names, seed=0):
    rng = np.random.default_rng(seed)
    return {name: tuple(rng.uniform(0.3, 0.9, LAYERS).tolist()) for name in names}


def subsets(count, seed=1):
    """Different subsets of several sizes."""
    rng = np.random.default_rng(seed)
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < count:
        kept = rng.choice(LAYERS, size=rng.integers(2, LAYERS), replace=False) + 1
        drawn.add(tuple(sorted(kept.tolist())))
    return sorted(drawn)


def true_value(scores, weights, kept, intercept=0.4, scale=0.1):
    return intercept + scale * sum(weights[name] * scores[name][layer - 1] for name in weights for layer in kept)


def noisy(scores, weights, count=20, noise=0.004):
    rng = np.random.default_rng(2)
    return {kept: true_value(scores, weights, kept) + noise * rng.normal() for kept in subsets(count)}


def test_weights_that_made_the_values_are_recovered():
    scores, weights = probes("pos", "ner", "qnli"), {"pos": 0.5, "ner": 0.2, "qnli": 0.3}
    calibration = calibrate(scores, {kept: true_value(scores, weights, kept) for kept in subsets(12)})
    assert calibration.weights == pytest.approx(weights)
    assert (calibration.intercept, calibration.scale) == pytest.approx((0.4, 0.1))
    assert calibration.error == pytest.approx(0, abs=1e-9)
    assert calibration.informative
    assert calibration.points == 12
    assert calibration.predict(scores, (1, 5)) == pytest.approx(true_value(scores, weights, (1, 5)))


def test_a_useless_probe_gets_nearly_no_weight():
    scores = probes("useful", "useless")
    calibration = calibrate(scores, noisy(scores, {"useful": 1.0}, count=40, noise=0.001))
    assert calibration.weights["useless"] < 0.05
    assert sum(calibration.weights.values()) == pytest.approx(1)
    assert calibration.error < calibration.error_uniform < calibration.error_mean


def features(scores, kept):
    return [sum(row[layer - 1] for layer in kept) for row in scores.values()]


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_errors_are_leave_one_out_errors(names):
    """Compared with another solver, which fits the intercept as a column."""
    scores = probes(*names)
    measured = noisy(scores, {names[0]: 1.0}, count=10, noise=0.03)
    table = np.array([features(scores, kept) for kept in measured])
    values = np.array(list(measured.values()))

    def left_out(columns):
        design = np.column_stack([np.ones(len(values)), columns])
        bounds = ([-np.inf] + [0] * columns.shape[1], np.inf)
        errors = []
        for out in range(len(values)):
            rest = np.arange(len(values)) != out
            solved = lsq_linear(design[rest], values[rest], bounds=bounds, tol=1e-14)
            errors.append(abs(design[out] @ solved.x - values[out]))
        return np.mean(errors)

    calibration = calibrate(scores, measured)
    others = [np.delete(values, out).mean() for out in range(len(values))]
    assert calibration.error == pytest.approx(left_out(table), abs=1e-6)
    assert calibration.error_uniform == pytest.approx(left_out(table.mean(1, keepdims=True)), abs=1e-6)
    assert calibration.error_mean == pytest.approx(np.mean(np.abs(others - values)))


def test_a_single_probe_has_weight_one():
    scores = probes("only")
    calibration = calibrate(scores, noisy(scores, {"only": 1.0}))
    assert calibration.weights == {"only": 1.0}
    assert calibration.informative
    assert calibration.error == calibration.error_uniform < calibration.error_mean


@pytest.mark.parametrize("sign", [-1, 0])
def test_weights_are_equal_where_no_probe_rises_with_the_values(sign):
    scores = probes("a", "b")
    measured = {kept: 0.7 + sign * 0.01 * sum(features(scores, kept)) for kept in subsets(10)}
    calibration = calibrate(scores, measured)
    assert not calibration.informative
    assert calibration.weights == {"a": 0.5, "b": 0.5}
    assert calibration.scale == 0
    assert calibration.predict(scores, (1, 2)) == pytest.approx(np.mean(list(measured.values())))


def test_probes_with_equal_scores_at_all_layers_are_not_informative():
    scores = {"a": (0.1,) * LAYERS, "b": (0.7,) * LAYERS}
    values = np.random.default_rng(0).uniform(0.6, 0.9, 8)
    measured = {(layer,): float(value) for layer, value in enumerate(values, 1)}
    assert not calibrate(scores, measured).informative


def test_a_saved_calibration_loads_unchanged(tmp_path):
    scores = probes("a", "b")
    calibration = calibrate(scores, noisy(scores, {"a": 1.0}))
    calibration.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == calibration


@pytest.mark.parametrize(
    ("scores", "measured", "field", "says"),
    [
        ({}, {}, "scores", "there are no probes"),
        ({"a": (0.1, 0.2), "b": (0.1,)}, {}, "scores", 'probe "b" has 1 scores, and "a" has 2'),
        ({"a": (0.1, math.nan)}, {}, "scores", "layer 2 is nan"),
        ({"a": (0.1, 0.2)}, {(1,): 0.1, (2,): 0.2}, "measured", "measure at least 3"),
        ({"a": (0.1, 0.2)}, {(1,): 0.1, (2,): 0.2, (3,): 0.3}, "measured", "each of the layers 1 to 2"),
        ({"a": (0.1, 0.2)}, {(1,): 0.1, (2,): 0.2, (0, 1): 0.3}, "measured", "(0, 1) are not layers"),
        ({"a": (0.1, 0.2)}, {(1,): 0.1, (2,): 0.2, (1, 1): 0.3}, "measured", "(1, 1) are not layers"),
        ({"a": (0.1, 0.2)}, {(1,): 0.1, (2,): math.inf, (1, 2): 0.3}, "measured", "(2,) is inf"),
    ],
)
def test_scores_and_values_that_are_refused(scores, measured, field, says):
    with pytest.raises(UserError) as caught:
        calibrate(scores, measured)
    assert caught.value.field == field
    assert says in str(caught.value)
    assert caught.value.hint


def test_predictions_need_the_same_probes_and_layers():
    scores = probes("a", "b")
    calibration = calibrate(scores, noisy(scores, {"a": 1.0}))
    assert calibration.predict({**probes("c"), **scores}, (1, 2)) == calibration.predict(scores, (1, 2))
    with pytest.raises(UserError, match='no scores of probe "b"'):
        calibration.predict({"a": scores["a"]}, (1, 2))
    with pytest.raises(UserError, match="not layers"):
        calibration.predict(scores, (1, 9))


@pytest.mark.parametrize("value", [1e308, -1e308, float("nan"), float("inf")])
def test_values_too_large_or_not_finite_are_refused(value):
    with pytest.raises(UserError, match="give finite values"):
        calibrate({"pos": (0.5, 0.6, 0.7)}, {(1,): 0.5, (2,): 0.6, (3,): value})
