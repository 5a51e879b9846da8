"""95 % intervals hold what they say, for few examples and where all are right: a calibration on known chances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from probescale.tasks import intervals
from probescale.tasks.data import tuple_rows
from probescale.tasks.intervals import interval, share_interval
from probescale.tasks.metrics import METRICS

TAGS = ("B-LOC", "O")


def answers(right: int, of: int) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted classes, so many of them right; both classes occur."""
    gold = np.arange(of) % 2
    return gold, np.where(np.arange(of) < right, gold, 1 - gold)


@pytest.mark.parametrize(("right", "of"), [(400, 500), (20, 20), (0, 20), (19, 20), (1, 1)])
def test_the_interval_of_a_share_is_the_exact_one(right, of):
    exact = binomtest(right, of).proportion_ci(method="exact")
    assert interval(METRICS["accuracy"], *answers(right, of), seed=0) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("of", [1, 5, 20, 100])
def test_the_interval_of_a_share_covers_at_least_95_percent(of):
    """Not simulated but summed up: every number of right answers, by its chance."""
    ends = np.array([share_interval(np.arange(of) < right, np.ones(of)) for right in range(of + 1)])
    for chance in (0.03, 0.3, 0.5, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1.0):
        covered = (ends[:, 0] <= chance) & (chance <= ends[:, 1])
        assert binom.pmf(np.arange(of + 1), of, chance)[covered].sum() >= 0.95 - 1e-9, chance


@pytest.mark.parametrize(("sentences", "share"), [(5, 0.9), (20, 0.8), (20, 0.97), (100, 0.95)])
@pytest.mark.parametrize("alike", [0.01, 0.2])
def test_the_interval_of_tags_covers_95_percent(sentences, share, alike):
    """`alike`: the correlation of answers in one sentence."""
    rng, draws, covered = np.random.default_rng(1), 200, 0
    for _ in range(draws):
        words = rng.integers(5, 30, sentences)
        of_sentence = rng.beta(share * (1 / alike - 1), (1 - share) * (1 / alike - 1), sentences)
        low, high = share_interval(rng.binomial(words, of_sentence), words)
        covered += low <= share <= high
    assert covered / draws >= 0.92  # 95 % within two standard deviations of 200 draws


@pytest.mark.parametrize(
    ("metric", "right", "rows"), [("macro_f1", 0.97, 25), ("matthews", 0.97, 25), ("matthews", 0.7, 100)]
)
def test_the_interval_of_other_class_metrics_covers_about_95_percent(metric, right, rows, monkeypatch):
    """Of two equal classes. Without the rows of doubt, 25 rows with 97 % right are covered in half of the draws."""
    monkeypatch.setattr(intervals, "DRAWS", 120)
    truth = {"macro_f1": right, "matthews": 2 * right - 1}[metric]
    rng, draws, covered = np.random.default_rng(0), 60, 0
    for seed in range(draws):
        gold = rng.integers(0, 2, rows)
        predicted = np.where(rng.random(rows) < right, gold, 1 - gold)
        low, high = interval(METRICS[metric], gold, predicted, seed)
        covered += low <= truth <= high
    assert covered / draws >= 0.9  # 95 % within two standard deviations of 60 draws


def test_the_interval_of_a_correlation_covers_about_95_percent(monkeypatch):
    monkeypatch.setattr(intervals, "DRAWS", 120)
    rng, draws, covered = np.random.default_rng(0), 100, 0
    for seed in range(draws):
        gold = rng.normal(size=40)
        low, high = interval(METRICS["pearson"], gold, 0.8 * gold + 0.6 * rng.normal(size=40), seed)
        covered += low <= 0.8 <= high
    assert covered / draws >= 0.9  # percentiles of so few rows cover 93 %


@pytest.mark.parametrize("name", [name for name, one in METRICS.items() if one.kind in ("class", "tags", "labels")])
def test_no_metric_is_certain_after_20_right_answers(name):
    gold = np.arange(20) % 2
    gold = tuple_rows([(tag, 1 - tag) for tag in gold.tolist()]) if METRICS[name].kind != "class" else gold
    low, high = interval(METRICS[name].for_names(TAGS), gold, gold, seed=0)
    assert low < 0.9
    assert high == 1


@pytest.mark.parametrize("name", ["recall_at_10", "ndcg_at_10"])
def test_no_search_is_certain_after_20_passages_found_first(name):
    low, high = interval(METRICS[name], np.zeros(20), np.ones(20), seed=0)
    assert low < 0.9
    assert high == 1


@pytest.mark.parametrize("name", ["recall_at_10", "ndcg_at_10"])
def test_the_interval_of_a_search_holds_its_value(name):
    ranks = np.random.default_rng(0).integers(1, 16, size=200).astype(float)
    low, high = interval(METRICS[name], np.zeros(200), ranks, seed=0)
    assert low < METRICS[name].value(METRICS[name].rows(np.zeros(200), ranks)) < high
    assert high - low < 0.2


def test_sentences_count_not_their_words():
    """Words that are right or wrong together are one answer."""
    gold, predicted = tuple_rows([(0, 0, 0), (1, 1, 1)] * 100), tuple_rows([(0, 0, 0)] * 200)
    exact = binomtest(100, 200).proportion_ci(method="exact")
    assert interval(METRICS["tag_accuracy"], gold, predicted, seed=0) == pytest.approx((exact.low, exact.high))


def test_nothing_measured_says_nothing():
    gold = tuple_rows([(1, 1)] * 5)  # no span, and none predicted
    assert interval(METRICS["entity_f1"].for_names(TAGS), gold, gold, seed=0) == (0, 1)
    assert interval(METRICS["spearman"], np.ones(1), np.ones(1), seed=0) == (0, 0)


def test_resampling_follows_the_seed():
    gold, predicted = answers(15, 20)
    first, again, other = (interval(METRICS["macro_f1"], gold, predicted, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first[0] < METRICS["macro_f1"](gold, predicted) < first[1]
