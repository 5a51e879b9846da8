"""The scaling law against known curves, scipy's fit, and the coverage of its intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from probescale.errors import UserError
from probescale.selection.scaling import ScalingLaw, fit_law, held_out_error

SIZES = np.geomspace(30e6, 330e6, 8)
TRUTH = {"asymptote": 0.92, "gain": 0.2, "exponent": 1.3}


def curve(sizes, asymptote=0.92, gain=0.2, exponent=1.3):
    return asymptote - gain * (np.asarray(sizes) / SIZES[0]) ** -exponent


def measured(seed, noise=0.01, repeats=2):
    """Points on the curve, each size several times, with noise."""
    sizes = np.repeat(SIZES, repeats)
    return list(zip(sizes, curve(sizes) + noise * np.random.default_rng(seed).normal(size=len(sizes)), strict=True))


@pytest.mark.parametrize(
    ("asymptote", "gain", "exponent"), [(0.92, 0.2, 1.3), (0.99, 0.5, 0.2), (0.8, 0.3, 6.0), (91.5, 20.0, 1.0)]
)
def test_a_curve_without_noise_is_recovered(asymptote, gain, exponent):
    law = fit_law(list(zip(SIZES, curve(SIZES, asymptote, gain, exponent), strict=True)))
    assert (law.asymptote, law.gain, law.exponent) == pytest.approx((asymptote, gain, exponent), rel=1e-7)
    assert law.predict(1e9) == pytest.approx(curve(1e9, asymptote, gain, exponent), rel=1e-7)
    assert law.residual < 1e-7
    assert law.smallest == SIZES[0]
    assert law.points == len(SIZES)


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_agrees_with_scipy(seed):
    sizes, values = np.array(measured(seed)).T
    bounds = ([-np.inf, 0, 0.05], [1, np.inf, 20])
    theirs, _ = curve_fit(curve, sizes, values, p0=[0.9, 0.1, 1.0], bounds=bounds, xtol=1e-14, ftol=1e-14)
    law = fit_law(list(zip(sizes, values, strict=True)))
    assert (law.asymptote, law.gain, law.exponent) == pytest.approx(theirs, rel=1e-4)
    assert law.residual <= np.sqrt(np.mean((values - curve(sizes, *theirs)) ** 2)) * (1 + 1e-9)


def test_intervals_contain_the_truth():
    """For one data set; the next test counts how often."""
    law = fit_law(measured(1))
    for name, true in TRUTH.items():
        low, high = law.intervals[name]
        assert low <= true <= high
        assert low <= getattr(law, name) <= high


def test_intervals_contain_the_truth_nearly_as_often_as_promised():
    sets = 40
    held = dict.fromkeys((*TRUTH, "between", "beyond"), 0)
    for seed in range(sets):
        law, rng = fit_law(measured(seed, repeats=1)), np.random.default_rng(1000 + seed)
        for name, true in TRUTH.items():
            held[name] += law.intervals[name][0] <= true <= law.intervals[name][1]
        for name, size in (("between", 75e6), ("beyond", 600e6)):
            low, high = law.interval(size)
            held[name] += low <= curve(size) + 0.01 * rng.normal() <= high
    assert all(count >= 0.8 * sets for count in held.values()), held


def test_more_points_narrow_the_intervals():
    few, many = fit_law(measured(1, repeats=1)), fit_law(measured(1, repeats=5))
    assert np.ptp(many.intervals["asymptote"]) < np.ptp(few.intervals["asymptote"])
    assert np.ptp(many.interval(75e6)) < np.ptp(few.interval(75e6))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.7, 1.0, 88.3])
def test_equal_values_make_a_flat_law(value):
    law = fit_law([(size, value) for size in SIZES])
    assert law.gain == 0
    assert law.residual == 0
    assert law.predict(5e6) == law.predict(5e9) == value
    assert law.interval(1e8) == (value, value)
    assert law.size_for(value) == SIZES[0]
    assert law.size_for(value + 0.01) is None


def test_falling_values_make_a_flat_law():
    law = fit_law([(1e6, 0.9), (2e6, 0.8), (3e6, 0.7), (4e6, 0.6)])
    assert law.gain == 0
    assert law.asymptote == pytest.approx(0.75)
    assert law.intervals["exponent"] == (0.05, 20)


def test_an_accuracy_stays_between_0_and_1():
    rising = [(1e6, 0.2), (2e6, 0.5), (4e6, 0.8), (8e6, 0.99)]
    law = fit_law(rising)
    assert law.asymptote <= 1
    assert law.predict(10) == 0
    assert all(0 <= end <= 1 for size in (1e5, 1e6, 1e8) for end in law.interval(size))
    percent = fit_law([(size, 100 * value) for size, value in rising])
    assert percent.asymptote > 100, "the range of other values is not known"


@pytest.mark.parametrize("value", [0.73, 0.8, 0.9, 0.919])
def test_size_for_is_the_inverse_of_predict(value):
    law = fit_law(measured(2, noise=0))
    size = law.size_for(value)
    assert size is not None
    assert law.predict(size) == pytest.approx(value)


def test_no_size_reaches_the_asymptote():
    law = fit_law(measured(2))
    assert law.size_for(law.asymptote) is None
    assert law.size_for(0.99) is None
    slow = law.model_copy(update={"exponent": 0.05})
    assert slow.size_for(math.nextafter(law.asymptote, 0)) is None, "the size would not be finite"


def test_a_saved_law_predicts_the_same(tmp_path):
    law = fit_law(measured(3))
    law.save(tmp_path / "law.json")
    again = ScalingLaw.load(tmp_path / "law.json")
    assert again == law
    assert (again.predict(2e8), again.interval(2e8)) == (law.predict(2e8), law.interval(2e8))
    assert len(law.draws) <= 200
    assert fit_law(measured(3)) == law


def test_the_law_predicts_held_out_sizes_best():
    errors = held_out_error(measured(4, noise=0.002))
    assert list(errors) == ["saturating", "power", "log_linear", "mean"]
    assert errors["saturating"] < min(errors["power"], errors["log_linear"], errors["mean"])


def test_held_out_errors_computed_by_hand():
    """Every size is left out with all its points, also the smallest and the largest."""
    points = [(1.0, 1.0), (1.0, 3.0), (math.e, 4.0), (math.e**2, 6.0)]
    errors = held_out_error(points)
    assert errors["mean"] == pytest.approx((4 + 2 + 2 / 3 + 10 / 3) / 4)
    # Lines through: (1, 4) and (2, 6), at 0: 2; (0, 2 on average) and (2, 6), at 1: 4; (0, 2) and (1, 4), at 2: 6
    assert errors["log_linear"] == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert held_out_error([(n, 3 * n**0.25) for n in (1.0, 2.0, 5.0, 9.0)])["power"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("values", [(0, 0, 0, 0), (-0.1, 0.0, 0.2, 0.3), (-0.3, -0.2, -0.1, -0.1), (0, 0, 0, 0.5)])
def test_values_without_a_logarithm_have_finite_errors(values):
    errors = held_out_error(list(zip((1e6, 2e6, 3e6, 4e6), values, strict=True)))
    assert all(math.isfinite(error) for error in errors.values())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**12), st.floats(-100, 100).map(lambda value: round(value, 6))),
        min_size=4,
        max_size=12,
    )
)
def test_any_points_give_finite_numbers(points):
    if len({size for size, _ in points}) < 3:
        return
    law = fit_law(points)
    assert all(math.isfinite(number) for draw in law.draws for number in draw)
    for size in (points[0][0], 10**12):
        low, high = law.interval(size)
        assert math.isfinite(law.predict(size))
        assert low <= high
    assert all(math.isfinite(error) for error in held_out_error(points).values())


@pytest.mark.parametrize("function", [fit_law, held_out_error])
@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([], "0 points of 0 different sizes"),
        ([(1e6, 0.5), (2e6, 0.6), (3e6, 0.7)], "3 points of 3 different sizes"),
        ([(1e6, 0.5), (1e6, 0.6), (3e6, 0.7), (3e6, 0.7)], "4 points of 2 different sizes"),
        ([(1e6, 0.5), (2e6, math.nan), (3e6, 0.7), (4e6, 0.7)], "nan"),
        ([(1e6, 0.5), (math.inf, 0.6), (3e6, 0.7), (4e6, 0.7)], "inf"),
        ([(1e6, 0.5), (0, 0.6), (3e6, 0.7), (4e6, 0.7)], "(0, 0.6) is not a measured point"),
        ([(1e6, 0.5), (-2e6, 0.6), (3e6, 0.7), (4e6, 0.7)], "sizes above 0"),
    ],
)
def test_points_that_show_no_law_are_refused(function, points, says):
    with pytest.raises(UserError) as caught:
        function(points)
    assert caught.value.field == "points"
    assert says in str(caught.value)


@pytest.mark.parametrize("size", [0, -1e6, math.nan, math.inf])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(UserError, match="is not a size"):
        fit_law(measured(0)).predict(size)
