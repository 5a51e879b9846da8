"""Every measure against a library or a value known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import seqeval.metrics
from sklearn.metrics import f1_score, r2_score

from probescale.probing.codelength import block_ends, online_code_length, uniform_code_length
from probescale.probing.controls import draw_control_labels, predict_bag_of_words, predict_majority
from probescale.probing.measures import HeldOutPredictions, Resampling, measure
from probescale.probing.probes.linear import fit, standardise
from probescale.probing.targets import ProbeLabels

NAMES = ("a", "b", "c", "d")
RNG = np.random.default_rng(0)
TRUTH = ProbeLabels("class", RNG.integers(0, 4, 400), NAMES)
GUESS = np.where(RNG.random(400) < 0.7, TRUTH.values, RNG.integers(0, 4, 400))


def estimate(truth, guess, saved=None, control=None, groups=None):
    saved = np.zeros(len(truth)) if saved is None else saved
    groups = np.arange(len(truth)) if groups is None else groups
    return measure(HeldOutPredictions(truth, guess, saved, control), Resampling(groups, seed=0))


def test_accuracy_and_f1_are_scikit_learns():
    measures = estimate(TRUTH, GUESS)
    assert measures["accuracy"].value == pytest.approx(np.mean(TRUTH.values == GUESS))
    assert measures["f1"].value == pytest.approx(f1_score(TRUTH.values, GUESS, average="macro"))
    absent = np.where(GUESS == 3, 0, GUESS)  # a class that is never answered still counts
    assert estimate(TRUTH, absent)["f1"].value == pytest.approx(f1_score(TRUTH.values, absent, average="macro"))


def test_several_labels_and_numbers():
    truth = ProbeLabels("multi", (RNG.random((300, 3)) < 0.3).astype(np.float32), NAMES[:3])
    guess = np.where(RNG.random((300, 3)) < 0.8, truth.values, 1 - truth.values)
    measures = estimate(truth, guess)
    assert measures["f1"].value == pytest.approx(f1_score(truth.values, guess, average="macro"))
    assert measures["accuracy"].value == pytest.approx((truth.values == guess).mean())

    number = ProbeLabels("number", RNG.normal(size=300).astype(np.float32))
    guess = number.values + RNG.normal(size=300).astype(np.float32)
    errors = (number.values - guess) ** 2
    measures = estimate(number, guess, saved=3 * errors)
    assert measures["accuracy"].value == pytest.approx(r2_score(number.values, guess), abs=1e-5)
    assert measures["information"].value == pytest.approx(1.0), "a quarter of the squared error is one bit"
    assert "f1" not in measures


def test_entity_f1_is_seqevals():
    names = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    truth = ProbeLabels("class", RNG.integers(0, 5, 300), names)
    guess = np.where(RNG.random(300) < 0.6, truth.values, RNG.integers(0, 5, 300))
    groups = np.arange(300) // 10
    as_lists = [[[names[k] for k in values[groups == g]] for g in range(30)] for values in (truth.values, guess)]
    expected = float(np.mean(seqeval.metrics.f1_score(*as_lists)))
    measures = estimate(truth, guess, groups=groups)
    assert measures["f1"].value == pytest.approx(expected)
    assert measures["f1"].low < expected < measures["f1"].high


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth = ProbeLabels("class", np.zeros(150, int), NAMES)
        accuracy = estimate(truth, (rng.random(150) > 0.8).astype(int))["accuracy"]
        covered += accuracy.low <= 0.8 <= accuracy.high
    assert 0.88 <= covered / 200 <= 0.99


def test_words_of_a_sentence_are_drawn_together():
    """Copies of a row add no evidence: drawn together they leave the interval as wide as it was."""
    few = ProbeLabels("class", TRUTH.values[:100], NAMES)
    copied = ProbeLabels("class", np.repeat(few.values, 9), NAMES)
    plain = estimate(few, GUESS[:100])["accuracy"]
    together = estimate(copied, np.repeat(GUESS[:100], 9), groups=np.repeat(np.arange(100), 9))["accuracy"]
    apart = estimate(copied, np.repeat(GUESS[:100], 9))["accuracy"]
    assert together.high - together.low == pytest.approx(plain.high - plain.low, rel=0.15)
    assert apart.high - apart.low < 0.5 * (plain.high - plain.low)


def test_selectivity_is_accuracy_minus_control_accuracy():
    control = ProbeLabels("class", RNG.integers(0, 4, 400), NAMES)
    answers = RNG.integers(0, 4, 400)
    measures = estimate(TRUTH, GUESS, control=(control, answers))
    expected = np.mean(TRUTH.values == GUESS) - np.mean(control.values == answers)
    assert measures["selectivity"].value == pytest.approx(expected)
    assert measures["control"].value == pytest.approx(np.mean(control.values == answers))


def test_control_labels_belong_to_the_key_and_to_the_seed():
    keys = [f"word{n % 60}" for n in range(400)]
    first, again, other = (draw_control_labels(TRUTH, keys, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)
    assert all(len({v for k, v in zip(keys, first.values, strict=True) if k == key}) == 1 for key in set(keys))
    many = draw_control_labels(TRUTH, [str(n) for n in range(400)], 0)
    shares = np.bincount(many.values) / 400 - np.bincount(TRUTH.values) / 400
    assert np.abs(shares).max() < 0.1, "labels keep their shares"


@pytest.mark.parametrize("classes", [2, 4])
def test_a_uniform_predictor_needs_n_log2_k_bits(classes):
    target = ProbeLabels("class", TRUTH.values % classes, NAMES[:classes])
    columns = target.columns
    bits = online_code_length(lambda x, y: lambda z: np.zeros((len(z), columns)), np.zeros((400, 1)), target)
    assert bits == pytest.approx(400 * np.log2(classes), rel=1e-9)
    assert uniform_code_length(target) == 400 * np.log2(classes)
    several = ProbeLabels("multi", np.zeros((10, 3), np.float32), NAMES[:3])
    assert uniform_code_length(several) == 30


def test_code_length_falls_with_what_the_features_know():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 10)).astype(np.float32)
    known = features.copy()
    known[:, :4] += 4 * np.eye(4)[TRUTH.values]
    lengths = []
    for rows in (features, known):
        standardise(rows, slice(0, 400))
        lengths.append(online_code_length(lambda x, y: fit(x, y, 0.01), rows, TRUTH))
    noise, signal = lengths
    assert signal < 0.7 * noise
    assert noise == pytest.approx(800, rel=0.1)


def test_a_block_is_encoded_by_a_probe_of_the_rows_before_it():
    seen = []
    online_code_length(lambda x, y: seen.append(len(x)) or (lambda z: np.zeros((len(z), 4))), np.zeros((400, 1)), TRUTH)
    assert seen == block_ends(400)[:-1] == [50, 100, 200]


def test_baselines_that_need_no_layer():
    target = ProbeLabels("class", np.array([0] * 70 + [1] * 30), NAMES[:2])
    order = np.random.default_rng(0).permutation(100)
    target, words = target[order], [("good" if v else "bad",) for v in target.values[order]]
    parts = (slice(0, 60), slice(60, 80), slice(80, 100))
    assert (predict_majority(target[:80], target[80:]) == 0).all()
    assert np.array_equal(predict_bag_of_words(words, target, parts), target.values[80:])
    number = ProbeLabels("number", target.values + 0.5)
    assert predict_majority(number[:80], number[80:])[0] == pytest.approx(number.values[:80].mean())
    assert np.corrcoef(predict_bag_of_words(words, number, parts), number.values[80:])[0, 1] > 0.99
    both = ProbeLabels("multi", np.stack([target.values, 1 - target.values], 1).astype(np.float32), NAMES[:2])
    assert np.array_equal(predict_bag_of_words(words, both, parts), both.values[80:])


def test_surprisal_is_in_bits():
    even = ProbeLabels("class", np.array([0, 1]), NAMES[:2]).surprisal(np.zeros((2, 1)), 10**9)
    assert even.tolist() == pytest.approx([1, 1])
    four = ProbeLabels("class", np.array([2]), NAMES).surprisal(np.log([[0.1, 0.2, 0.25, 0.45]]), 10**9)
    assert four[0] == pytest.approx(2)
    prior = ProbeLabels("class", np.array([0, 0, 0, 1]), NAMES[:2])
    assert prior.surprisal(prior.prior_logits(4), 10**9).mean() == pytest.approx(0.8113, abs=1e-4)


def test_a_bag_of_words_with_hundreds_of_classes():
    words = [(f"name{number % 600} and some words",) for number in range(1800)]
    target = ProbeLabels("class", np.arange(1800) % 600)
    assert np.array_equal(
        predict_bag_of_words(words, target, (slice(600), slice(600, 1200), slice(1200, 1800))), np.arange(600)
    )
