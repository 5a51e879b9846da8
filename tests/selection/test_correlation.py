"""Rank correlation between a criterion and measured values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from probescale.errors import UserError
from probescale.selection.correlation import Correlation, rank_correlation

PAIRS = list(itertools.combinations(range(1, 8), 2))  # 21 subsets of equal k
MIXED = [tuple(range(1, k + 1)) for k in (1, 2, 3)] + PAIRS


def random_values(subsets, seed):
    return dict(zip(subsets, np.random.default_rng(seed).normal(size=len(subsets)).tolist(), strict=False))


def test_the_same_order_has_correlation_1():
    measured = random_values(PAIRS, 0)
    correlation = rank_correlation({kept: math.exp(value) for kept, value in measured.items()}, measured)
    assert (correlation.rho, correlation.low, correlation.high, correlation.within) == pytest.approx((1, 1, 1, 1))
    assert correlation.subsets == len(PAIRS)


def test_the_reverse_order_has_correlation_minus_1():
    measured = random_values(PAIRS, 0)
    correlation = rank_correlation({kept: -value for kept, value in measured.items()}, measured)
    assert (correlation.rho, correlation.low, correlation.high, correlation.within) == pytest.approx((-1, -1, -1, -1))


def test_the_interval_of_unrelated_values_contains_0():
    correlation = rank_correlation(random_values(PAIRS, 1), random_values(PAIRS, 2))
    assert correlation.low < 0 < correlation.high
    assert correlation.low <= correlation.rho <= correlation.high


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_it_agrees_with_scipy(digits):
    """Also with ties: values of few digits have many."""
    predicted = {kept: round(value, digits) for kept, value in random_values(MIXED, 3).items()}
    measured = {kept: round(value + predicted[kept], digits) for kept, value in random_values(MIXED, 4).items()}
    correlation = rank_correlation(predicted, measured)
    both = [(predicted[kept], measured[kept]) for kept in predicted]
    assert correlation.rho == pytest.approx(np.asarray(spearmanr(both))[0])
    draws = np.random.default_rng(5).integers(len(both), size=(400, len(both)))
    theirs = [spearmanr(np.array(both)[draw])[0] for draw in draws]
    assert (correlation.low, correlation.high) == pytest.approx(np.percentile(theirs, [2.5, 97.5]), abs=0.12)


def test_within_compares_only_equal_numbers_of_layers():
    """The criterion knows that more layers are better, and nothing about subsets of equal size."""
    subsets = [tuple(range(start, start + k)) for k in (1, 3, 5) for start in range(1, 9)]
    predicted = {kept: 10 * len(kept) + (kept[0] * 3) % 8 for kept in subsets}
    measured = {kept: 10.0 * len(kept) + kept[0] for kept in subsets}
    correlation = rank_correlation(predicted, measured)
    same = [rank_correlation(_select_size(predicted, k), _select_size(measured, k)).rho for k in (1, 3, 5)]
    assert correlation.rho > 0.8
    assert correlation.within == pytest.approx(np.mean(same))
    assert abs(np.mean(same)) < 0.3


def _select_size(values, k):
    return {kept: value for kept, value in values.items() if len(kept) == k}


def test_within_is_weighted_by_the_number_of_subsets_and_needs_four():
    ones, threes = [(layer,) for layer in range(1, 7)], [(1, 2, layer) for layer in range(3, 7)]
    twos = [(1, 2), (2, 3), (3, 4)]  # too few
    measured = {kept: float(sum(kept)) for kept in (*ones, *twos, *threes)}
    predicted = {kept: value if len(kept) == 1 else -value for kept, value in measured.items()}
    assert rank_correlation(predicted, measured).within == pytest.approx((6 * 1 + 4 * -1) / 10)
    few = {kept: measured[kept] for kept in (*twos, *threes[:3])}
    assert rank_correlation(few, few).within is None


@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_constant_values_have_correlation_0(side):
    values, constant = random_values(PAIRS, 0), dict.fromkeys(PAIRS, 0.5)
    correlation = rank_correlation(constant, values) if side == "predicted" else rank_correlation(values, constant)
    assert correlation == Correlation(rho=0, low=0, high=0, within=0, subsets=len(PAIRS))


def test_values_constant_for_each_number_of_layers_have_within_0():
    measured = random_values(MIXED, 0)
    correlation = rank_correlation({kept: float(len(kept)) for kept in MIXED}, measured)
    assert correlation.within == 0
    assert not any(math.isnan(end) for end in (correlation.rho, correlation.low, correlation.high))


def test_only_common_subsets_count_in_any_order():
    predicted, measured = random_values(PAIRS, 1), random_values(PAIRS, 2)
    correlation = rank_correlation(predicted, measured)
    more = {(99,): 5.0, **dict(reversed(predicted.items()))}
    assert rank_correlation(more, {**measured, (98,): 1.0}) == correlation


def test_a_saved_correlation_loads_unchanged(tmp_path):
    correlation = rank_correlation(random_values(PAIRS, 1), random_values(PAIRS, 2))
    correlation.save(tmp_path / "correlation.json")
    assert Correlation.load(tmp_path / "correlation.json") == correlation


def test_too_few_common_subsets_are_refused():
    values = random_values(PAIRS, 0)
    with pytest.raises(UserError, match="3 subsets were measured and predicted, of 21") as caught:
        rank_correlation(dict(list(values.items())[:3]), values)
    assert caught.value.field == "measured"


@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_values_that_are_not_finite_are_refused(side):
    sides = {"predicted": random_values(PAIRS, 0), "measured": random_values(PAIRS, 0)}
    sides[side][1, 3] = math.nan
    with pytest.raises(UserError, match=r"\(1, 3\) is nan") as caught:
        rank_correlation(**sides)
    assert caught.value.field == side
