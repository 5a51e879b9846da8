"""Rank correlation of a criterion with what was measured."""

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


def test_the_same_order_is_perfect():
    measured = random_values(PAIRS, 0)
    found = rank_correlation({kept: math.exp(value) for kept, value in measured.items()}, measured)
    assert (found.rho, found.low, found.high, found.within) == pytest.approx((1, 1, 1, 1))
    assert found.subsets == len(PAIRS)


def test_the_reverse_order():
    measured = random_values(PAIRS, 0)
    found = rank_correlation({kept: -value for kept, value in measured.items()}, measured)
    assert (found.rho, found.low, found.high, found.within) == pytest.approx((-1, -1, -1, -1))


def test_what_is_unrelated_may_be_0():
    found = rank_correlation(random_values(PAIRS, 1), random_values(PAIRS, 2))
    assert found.low < 0 < found.high
    assert found.low <= found.rho <= found.high


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_it_is_scipys(digits):
    """With ties as well: few digits make many."""
    predicted = {kept: round(value, digits) for kept, value in random_values(MIXED, 3).items()}
    measured = {kept: round(value + predicted[kept], digits) for kept, value in random_values(MIXED, 4).items()}
    found = rank_correlation(predicted, measured)
    both = [(predicted[kept], measured[kept]) for kept in predicted]
    assert found.rho == pytest.approx(np.asarray(spearmanr(both))[0])
    draws = np.random.default_rng(5).integers(len(both), size=(400, len(both)))
    theirs = [spearmanr(np.array(both)[draw])[0] for draw in draws]
    assert (found.low, found.high) == pytest.approx(np.percentile(theirs, [2.5, 97.5]), abs=0.12)


def test_within_looks_at_equal_numbers_of_layers_alone():
    """More layers are better here and the criterion says so, but among equally many it has no idea."""
    subsets = [tuple(range(start, start + k)) for k in (1, 3, 5) for start in range(1, 9)]
    predicted = {kept: 10 * len(kept) + (kept[0] * 3) % 8 for kept in subsets}
    measured = {kept: 10.0 * len(kept) + kept[0] for kept in subsets}
    found = rank_correlation(predicted, measured)
    same = [rank_correlation(_of(predicted, k), _of(measured, k)).rho for k in (1, 3, 5)]
    assert found.rho > 0.8
    assert found.within == pytest.approx(np.mean(same))
    assert abs(np.mean(same)) < 0.3


def _of(values, k):
    return {kept: value for kept, value in values.items() if len(kept) == k}


def test_within_weighs_by_the_number_of_subsets_and_needs_four():
    ones, threes = [(layer,) for layer in range(1, 7)], [(1, 2, layer) for layer in range(3, 7)]
    twos = [(1, 2), (2, 3), (3, 4)]  # too few
    measured = {kept: float(sum(kept)) for kept in (*ones, *twos, *threes)}
    predicted = {kept: value if len(kept) == 1 else -value for kept, value in measured.items()}
    assert rank_correlation(predicted, measured).within == pytest.approx((6 * 1 + 4 * -1) / 10)
    few = {kept: measured[kept] for kept in (*twos, *threes[:3])}
    assert rank_correlation(few, few).within is None


@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_constant_values_rank_nothing(side):
    values, constant = random_values(PAIRS, 0), dict.fromkeys(PAIRS, 0.5)
    found = rank_correlation(constant, values) if side == "predicted" else rank_correlation(values, constant)
    assert found == Correlation(rho=0, low=0, high=0, within=0, subsets=len(PAIRS))


def test_constant_within_each_number_of_layers():
    measured = random_values(MIXED, 0)
    found = rank_correlation({kept: float(len(kept)) for kept in MIXED}, measured)
    assert found.within == 0
    assert not any(math.isnan(end) for end in (found.rho, found.low, found.high))


def test_only_subsets_in_both_count_in_any_order():
    predicted, measured = random_values(PAIRS, 1), random_values(PAIRS, 2)
    found = rank_correlation(predicted, measured)
    more = {(99,): 5.0, **dict(reversed(predicted.items()))}
    assert rank_correlation(more, {**measured, (98,): 1.0}) == found


def test_it_saves_and_loads(tmp_path):
    found = rank_correlation(random_values(PAIRS, 1), random_values(PAIRS, 2))
    found.save(tmp_path / "correlation.json")
    assert Correlation.load(tmp_path / "correlation.json") == found


def test_too_few_subsets_in_common():
    values = random_values(PAIRS, 0)
    with pytest.raises(UserError, match="3 subsets were measured and predicted, of 21") as caught:
        rank_correlation(dict(list(values.items())[:3]), values)
    assert caught.value.field == "measured"


@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_values_that_are_no_numbers(side):
    sides = {"predicted": random_values(PAIRS, 0), "measured": random_values(PAIRS, 0)}
    sides[side][1, 3] = math.nan
    with pytest.raises(UserError, match=r"\(1, 3\) is nan") as caught:
        rank_correlation(**sides)
    assert caught.value.field == side
