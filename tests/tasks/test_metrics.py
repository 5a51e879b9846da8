from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from probescale.tasks.metrics import METRICS, interval


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy", 0.75), ("macro_f1", (2 / 3 + 4 / 5) / 2), ("matthews", 0.577)]
)
def test_values_worked_out_by_hand(name, value):
    gold, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert METRICS[name](gold, predicted) == pytest.approx(value, abs=1e-3)


def test_the_interval_is_that_of_the_binomial_and_follows_the_seed():
    gold = np.zeros(500, int)
    predicted = (np.arange(500) < 100).astype(int)  # 80 % right
    low, high = interval(METRICS["accuracy"], gold, predicted, seed=0)
    exact = binomtest(400, 500).proportion_ci()
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=0.01)
    assert interval(METRICS["accuracy"], gold, predicted, seed=0) == (low, high)
    assert interval(METRICS["accuracy"], gold[:1], gold[:1], seed=0) == (1.0, 1.0)
