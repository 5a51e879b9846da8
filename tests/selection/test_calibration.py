"""Weights learned from measured subnetworks, and where those are read from."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from probescale.errors import UserError
from probescale.selection.calibration import Calibration, calibrate, load_measured

LAYERS = 8


def probes(*names, seed=0):
    rng = np.random.default_rng(seed)
    return {name: tuple(rng.uniform(0.3, 0.9, LAYERS).tolist()) for name in names}


def subsets(count, seed=1):
    """So many different subsets of several sizes."""
    rng = np.random.default_rng(seed)
    found: set[tuple[int, ...]] = set()
    while len(found) < count:
        kept = rng.choice(LAYERS, size=rng.integers(2, LAYERS), replace=False) + 1
        found.add(tuple(sorted(kept.tolist())))
    return sorted(found)


def true_value(scores, weights, kept, intercept=0.4, scale=0.1):
    return intercept + scale * sum(weights[name] * scores[name][layer - 1] for name in weights for layer in kept)


def noisy(scores, weights, count=20, noise=0.004):
    rng = np.random.default_rng(2)
    return {kept: true_value(scores, weights, kept) + noise * rng.normal() for kept in subsets(count)}


def test_the_weights_behind_the_values_are_found():
    scores, weights = probes("pos", "ner", "qnli"), {"pos": 0.5, "ner": 0.2, "qnli": 0.3}
    found = calibrate(scores, {kept: true_value(scores, weights, kept) for kept in subsets(12)})
    assert found.weights == pytest.approx(weights)
    assert (found.intercept, found.scale) == pytest.approx((0.4, 0.1))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.informative
    assert found.points == 12
    assert found.predict(scores, (1, 5)) == pytest.approx(true_value(scores, weights, (1, 5)))


def test_a_useless_probe_counts_nearly_nothing():
    scores = probes("useful", "useless")
    found = calibrate(scores, noisy(scores, {"useful": 1.0}, count=40, noise=0.001))
    assert found.weights["useless"] < 0.05
    assert sum(found.weights.values()) == pytest.approx(1)
    assert found.error < found.error_uniform < found.error_mean


def features(scores, kept):
    return [sum(row[layer - 1] for layer in kept) for row in scores.values()]


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_errors_are_those_of_fitting_without_each_subset(names):
    """By another solver, with the intercept as a column of its own."""
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

    found = calibrate(scores, measured)
    others = [np.delete(values, out).mean() for out in range(len(values))]
    assert found.error == pytest.approx(left_out(table), abs=1e-6)
    assert found.error_uniform == pytest.approx(left_out(table.mean(1, keepdims=True)), abs=1e-6)
    assert found.error_mean == pytest.approx(np.mean(np.abs(others - values)))


def test_one_probe_alone():
    scores = probes("only")
    found = calibrate(scores, noisy(scores, {"only": 1.0}))
    assert found.weights == {"only": 1.0}
    assert found.informative
    assert found.error == found.error_uniform < found.error_mean


@pytest.mark.parametrize("sign", [-1, 0])
def test_nothing_rises_with_the_values(sign):
    scores = probes("a", "b")
    measured = {kept: 0.7 + sign * 0.01 * sum(features(scores, kept)) for kept in subsets(10)}
    found = calibrate(scores, measured)
    assert not found.informative
    assert found.weights == {"a": 0.5, "b": 0.5}
    assert found.scale == 0
    assert found.predict(scores, (1, 2)) == pytest.approx(np.mean(list(measured.values())))


def test_probes_that_are_the_same_everywhere_say_nothing():
    scores = {"a": (0.1,) * LAYERS, "b": (0.7,) * LAYERS}
    values = np.random.default_rng(0).uniform(0.6, 0.9, 8)
    measured = {(layer,): float(value) for layer, value in enumerate(values, 1)}
    assert not calibrate(scores, measured).informative


def test_it_saves_and_loads(tmp_path):
    scores = probes("a", "b")
    found = calibrate(scores, noisy(scores, {"a": 1.0}))
    found.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == found


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
def test_what_cannot_be_learned_from(scores, measured, field, says):
    with pytest.raises(UserError) as caught:
        calibrate(scores, measured)
    assert caught.value.field == field
    assert says in str(caught.value)
    assert caught.value.hint


def test_predicting_needs_the_same_probes_and_layers():
    scores = probes("a", "b")
    found = calibrate(scores, noisy(scores, {"a": 1.0}))
    assert found.predict({**probes("c"), **scores}, (1, 2)) == found.predict(scores, (1, 2))
    with pytest.raises(UserError, match='no scores of probe "b"'):
        found.predict({"a": scores["a"]}, (1, 2))
    with pytest.raises(UserError, match="not layers"):
        found.predict(scores, (1, 9))


def write_run(folder, subnetwork=((3, 4), 0.8), compared=None, **changes):
    """A metrics.json as a run writes it; fields that are not read are left out."""
    ends = {"original": (tuple(range(1, 5)), 0.9), "subnetwork": subnetwork}
    parts = {name: {"kept": kept, "value": value} for name, (kept, value) in ends.items()}
    others = {name: {"kept": kept, "value": value} for name, (kept, value) in (compared or {}).items()}
    result = {"task": "sst2", "metric": "accuracy", "split": "dev", **parts, "compared": others, **changes}
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps(result))
    return folder


def write_csv(path, text):
    path.write_text(text)
    return path


def test_runs_and_tables_are_read_together(tmp_path):
    one = write_run(tmp_path / "one", compared={"top_k": ((3, 4), 0.8), "uniform_k": ((2, 4), 0.7)})
    two = write_run(tmp_path / "two", subnetwork=((1, 2), 0.5))
    table = write_csv(tmp_path / "more.csv", 'layers,value,note\n1-2,0.7,x\n"1,3-4",0.75,y\n"4,1",0.6,z\n')
    assert load_measured([one, two / "metrics.json", table]) == pytest.approx(
        {(1, 2, 3, 4): 0.9, (3, 4): 0.8, (2, 4): 0.7, (1, 2): 0.6, (1, 3, 4): 0.75, (1, 4): 0.6}
    )


def test_a_subset_that_two_strategies_chose_was_measured_once(tmp_path):
    one = write_run(tmp_path / "one", compared={"top_k": ((3, 4), 0.8)})
    two = write_run(tmp_path / "two", subnetwork=((3, 4), 0.6))
    assert load_measured([one, two])[3, 4] == pytest.approx(0.7)


@pytest.mark.parametrize(
    "changes", [{"task": "qnli"}, {"metric": "matthews"}, {"split": "test"}, {"original": {"kept": [1], "value": 0.5}}]
)
def test_runs_of_different_things_are_not_mixed(tmp_path, changes):
    with pytest.raises(UserError, match=r"two.*but.*one") as caught:
        load_measured([write_run(tmp_path / "one"), write_run(tmp_path / "two", **changes)])
    assert caught.value.field == "MEASURED"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "layer,value\n1,0.5\n", "no column layers"),
        ("a.csv", "", "no column layers, value"),
        ("a.csv", "layers,value\n", "it has no rows"),
        ("a.csv", "layers,value\n1-4,high\n", 'line 2: the value is "high"'),
        ("a.csv", "layers,value\n1-4,\n", 'line 2: the value is ""'),
        ("a.csv", "layers,value\n1-4\n", 'line 2: the value is ""'),
        ("a.csv", "layers,value\n1-4,0.5\n1-2,nan\n", 'line 3: the value is "nan"'),
        ("a.csv", "layers,value\n1,3,5-7,0.5\n", 'put layers in quotes: "1,3,5-7"'),
        ("a.csv", "layers,value\nfour,0.5\n", 'line 2: "four" is not a layer'),
        ("a.csv", "layers,value\n,0.5\n", 'line 2: "" is not a layer'),
        ("a.csv", "layers,value\n4-1,0.5\n", 'line 2: "4-1" runs backwards'),
        ("a.csv", "layers,value\n0-3,0.5\n", "layers count from 1"),
        ("a.csv", 'layers,value\n"1,1-2",0.5\n', "each is there once"),
        ("metrics.json", "{", "is not JSON"),
        ("metrics.json", "[" * 100_000, "is not JSON"),
        ("metrics.json", "[]", "is not the result of a run"),
        ("metrics.json", '{"task": "sst2"}', "is not the result of a run: metric"),
        ("table.txt", "layers,value\n1,0.5\n", "name a CSV file .csv"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, text, says):
    with pytest.raises(UserError) as caught:
        load_measured([write_csv(tmp_path / name, text)])
    assert caught.value.field == "MEASURED"
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_run_with_a_value_that_is_no_number(tmp_path):
    with pytest.raises(UserError, match=r"subnetwork\.value"):
        load_measured([write_run(tmp_path / "one", subnetwork=((1, 2), math.nan))])


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv", "x" * 300])
def test_places_where_nothing_is(tmp_path, name):
    with pytest.raises(UserError, match="neither a file nor a folder"):
        load_measured([tmp_path / name])


def test_bytes_that_are_no_text(tmp_path):
    for name in ("a.csv", "metrics.json"):
        (tmp_path / name).write_bytes(b"layers,value\n\xff\xfe,1\n")
        with pytest.raises(UserError, match=r"cannot be read|is not JSON"):
            load_measured([tmp_path / name])


@pytest.mark.parametrize("value", [1e308, -1e308, float("nan"), float("inf")])
def test_values_whose_sums_are_no_numbers(value):
    with pytest.raises(UserError, match="give finite values"):
        calibrate({"pos": (0.5, 0.6, 0.7)}, {(1,): 0.5, (2,): 0.6, (3,): value})
