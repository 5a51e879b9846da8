"""The solver against scikit-learn, for every kind of target."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge

from probescale.probing.probes import PROBES, closed_form, curvature, linear
from probescale.probing.probes.curvature import Curvature
from probescale.probing.probes.linear import fit, fit_path, standardise
from probescale.probing.targets import ProbeLabels

NAMES = ("a", "b", "c", "d", "e")


def data(classes: int, rows: int = 600, hidden: int = 20, seed: int = 0):
    """Correlated features of very different scale, and labels that some of them carry."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, hidden)) @ rng.normal(size=(hidden, hidden)) * np.geomspace(0.01, 100, hidden)
    scores = features / features.std(0) @ rng.normal(size=(hidden, classes)) + rng.gumbel(size=(rows, classes)) * 3
    features = features.astype(np.float32)
    standardise(features, slice(0, rows))
    return features, ProbeLabels("class", scores.argmax(1), NAMES[:classes])


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_the_solution_is_scikit_learns(classes, penalty):
    features, target = data(classes)
    ours = fit(features, target, penalty, tolerance=1e-9)
    theirs = LogisticRegression(C=penalty, tol=1e-8, max_iter=10_000).fit(features.astype(float), target.values)
    assert ours.converged
    weights = ours.weights.T
    if classes > 2:  # a shift of all classes changes no prediction, and weak penalties hardly keep it at zero
        weights = weights - weights.mean(0)
    np.testing.assert_allclose(weights, theirs.coef_, atol=2e-3 * np.abs(theirs.coef_).max())
    assert np.array_equal(target.predict(ours(features)), theirs.predict(features))


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_several_labels_are_as_many_separate_probes(penalty):
    features, target = data(3)
    labels = np.stack([target.values == 0, target.values != 1, target.values == 2], 1).astype(np.float32)
    ours = fit(features, ProbeLabels("multi", labels, NAMES[:3]), penalty, tolerance=1e-9)
    for k in range(3):
        theirs = LogisticRegression(C=penalty, tol=1e-8, max_iter=10_000).fit(features.astype(float), labels[:, k])
        np.testing.assert_allclose(ours.weights[:, k], theirs.coef_[0], atol=2e-3 * np.abs(theirs.coef_).max())


@pytest.mark.parametrize("penalty", [0.001, 1.0])
def test_numbers_are_ridge(penalty):
    features, target = data(3)
    values = (features[:, 0] + target.values + 5).astype(np.float32)
    ours = fit(features, ProbeLabels("number", values), penalty)
    theirs = Ridge(alpha=1 / penalty).fit(features.astype(float), values)
    np.testing.assert_allclose(ours.weights[:, 0], theirs.coef_, atol=1e-3 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(ours(features)[:, 0], theirs.predict(features), atol=1e-3)


def test_with_many_classes_it_is_scikit_learns_discriminant(monkeypatch):
    monkeypatch.setattr(closed_form, "MANY_CLASSES", 4)
    features, target = data(5, rows=4000)
    ours = fit(features, target, 1e6)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(features.astype(float), target.values)
    np.testing.assert_allclose(softmax(ours(features), 1), theirs.predict_proba(features), atol=0.01)
    assert np.mean(target.predict(ours(features)) == theirs.predict(features)) > 0.995


def test_thousands_of_classes_are_separated():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3000, 64))
    labels = np.concatenate([np.arange(3000), rng.integers(0, 3000, 3000)])
    features = (centres[labels] + 0.3 * rng.normal(size=(6000, 64))).astype(np.float32)
    target = ProbeLabels("class", labels, tuple(str(number) for number in range(10_000)))
    train, tuning, rest = slice(0, 5000), slice(5000, 5500), slice(5500, 6000)
    probe, _ = fit_path(features[train], target[train], (0.0001, 0.01, 1.0), (features[tuning], target[tuning]))
    assert np.mean(target[rest].predict(probe(features[rest])) == labels[rest]) > 0.95
    assert target[rest].loss(probe(features[rest]), 5000) < 1 < target[rest].loss(target[train].prior_logits(500), 5000)


def test_the_penalty_is_the_one_with_the_lowest_loss_on_the_tuning_rows():
    features, target = data(3, rows=400)
    penalties = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
    chosen, _ = fit_path(features[:200], target[:200], penalties, (features[200:], target[200:]))
    losses = {c: target[200:].loss(fit(features[:200], target[:200], c)(features[200:]), 200) for c in penalties}
    assert chosen.penalty == min(losses, key=losses.__getitem__)


def test_a_class_that_the_training_rows_lack_costs_bits_but_not_infinitely_many():
    features, target = data(5)
    seen = np.flatnonzero(target.values != 4)
    ours = fit(features[seen], target[seen], 1.0)
    bits = target.surprisal(ours(features), trained_on=len(seen))
    assert np.isfinite(bits).all()
    assert bits[target.values == 4].mean() > 5


def test_a_probe_that_runs_out_of_steps_says_so(monkeypatch):
    features, target = data(5)
    monkeypatch.setattr(linear, "MAX_STEPS", 2)
    assert not fit(features, target, 10.0).converged


def test_convergence_is_within_the_stated_gap():
    features, target = data(5)

    def loss(probe):
        fitted = target.surprisal(probe(features), 10**9).mean() * np.log(2)
        return fitted + 0.5 / (0.1 * len(features)) * float((probe.weights**2).sum())

    rough, close, closest = (fit(features, target, 0.1, tolerance=t) for t in (1e-4, 1e-6, 1e-10))
    assert 0 <= loss(rough) - loss(closest) < 1e-3
    assert abs(loss(close) - loss(closest)) < 1e-5
    assert close.gap <= 1e-6


def test_many_classes_share_one_curvature_and_agree(monkeypatch):
    features, target = data(5)
    own = fit(features, target, 0.1, tolerance=1e-9)
    monkeypatch.setattr(curvature, "LARGEST_FACTORS", 10)
    assert len(Curvature.estimate(features, target).matrices) == 1
    shared = fit(features, target, 0.1, tolerance=1e-9)
    np.testing.assert_allclose(shared.weights, own.weights, atol=2e-3)


def test_columns_that_are_constant_but_for_rounding_become_zero():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(100, 3)).astype(np.float32)
    features[:, 1] = 3.0 + rng.normal(size=100) * 1e-7
    features[:, 2] = 0
    standardise(features, slice(0, 80))
    assert (features[:, 1:] == 0).all()
    np.testing.assert_allclose(features[:80, 0].std(), 1, rtol=1e-4)
    np.testing.assert_allclose(features[:80, 0].mean(), 0, atol=1e-6)


def test_scale_of_the_features_does_not_matter():
    features, _ = data(3)
    scaled = features * np.geomspace(1e-3, 1e3, 20).astype(np.float32)
    standardise(scaled, slice(0, len(scaled)))
    np.testing.assert_allclose(scaled, features, atol=1e-4)


def test_an_mlp_learns_what_a_line_cannot():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, 4)).astype(np.float32)
    xor = ((features[:, 0] > 0) != (features[:, 1] > 0)).astype(int)
    for names, values in ((NAMES[:2], xor), (NAMES[:3], xor + (features[:, 2] > 1))):
        target = ProbeLabels("class", values, names)
        accuracy = {}
        tuning = (features[800:1000], target[800:1000])
        for name in ("linear", "mlp"):
            best = PROBES[name]().fit_path(features[:800], target[:800], (0.1, 10.0), tuning)
            accuracy[name] = np.mean(target.predict(best(features[1000:])) == values[1000:])
        assert accuracy["mlp"] > 0.85 > 0.7 > accuracy["linear"]


def test_an_mlp_takes_several_labels_and_numbers():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 4)).astype(np.float32)
    labels = np.stack([features[:, 0] > 0, abs(features[:, 1]) > 0.7], 1).astype(np.float32)
    several = ProbeLabels("multi", labels, NAMES[:2])
    answers = several.predict(PROBES["mlp"]().fit(features, several, 10.0)(features))
    assert (answers == several.values).mean() > 0.9
    number = ProbeLabels("number", abs(features[:, 0]))
    assert np.corrcoef(PROBES["mlp"]().fit(features, number, 10.0)(features)[:, 0], number.values)[0, 1] > 0.9
