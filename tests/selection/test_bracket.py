"""The smallest size that is good enough: always right on a rising curve, with any cheap scores."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probescale.selection.bracket import find_smallest, max_evaluations, next_size, predict_values

values = st.floats(0.01, 1)


@st.composite
def curves(draw, *, rising=True):
    """(sizes, full size, value of every size, cheap score of every size, value to reach)."""
    sizes = sorted(draw(st.sets(st.integers(1, 60), max_size=40)))
    full = (sizes[-1] if sizes else 0) + draw(st.integers(1, 5))
    measured = draw(st.lists(values, min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    cheap = draw(st.lists(st.one_of(st.just(0.0), values), min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    every = [*sizes, full]
    share = draw(st.floats(0.05, 1))
    curve = dict(zip(every, sorted(measured) if rising else measured, strict=True))
    return sizes, full, curve, dict(zip(every, cheap, strict=True)), share


def search(sizes, full, curve, cheap, share):
    """The answer, all values, and the sizes in the order in which they were measured."""
    order = []

    def measure(size, expected):
        assert (expected is None) == (size == full)
        order.append(size)
        return curve[size]

    best, measured = find_smallest(sizes, full, cheap, measure, lambda value: share * value)
    return best, measured, order


@settings(max_examples=300, deadline=None)
@given(curves())
def test_on_a_rising_curve_the_smallest_size_is_found_with_any_cheap_scores(problem):
    sizes, full, curve, _, share = problem
    best, measured, order = search(*problem)
    assert best == min(size for size in (*sizes, full) if curve[size] >= share * curve[full])
    assert measured == {size: curve[size] for size in order}
    assert order[0] == full
    assert len(set(order)) == len(order) <= max_evaluations(len(sizes)) + 1
    assert best in measured
    smaller = [size for size in sizes if size < best]
    assert not smaller or smaller[-1] in measured, "the next smaller size was measured too"


@settings(deadline=None)
@given(curves(rising=False))
def test_on_any_curve_the_answer_was_measured_and_reaches_the_target(problem):
    sizes, full, curve, _, share = problem
    best, measured, order = search(*problem)
    assert curve[best] >= share * curve[full]
    assert measured[best] == curve[best]
    assert len(set(order)) == len(order) <= max_evaluations(len(sizes)) + 1
    assert best == min(size for size in order if curve[size] >= share * curve[full])


def count_measurements_with_perfect_scores(sizes):
    """Measurements for every possible answer, with cheap scores equal to the measured values."""
    curve = {size: 0.5 + size / 200 for size in range(1, sizes + 2)}
    counts = []
    for smallest in curve:
        best, _, order = search(range(1, sizes + 1), sizes + 1, curve, curve, curve[smallest] / curve[sizes + 1])
        assert best == smallest
        counts.append(len(order))
    return counts


@pytest.mark.parametrize("sizes", [1, 2, 3, 5, 11, 23])
def test_perfect_scores_save_measurements(sizes):
    """Three suffice: the original, the answer, and the size below it, where the worst case allows that order."""
    counts = count_measurements_with_perfect_scores(sizes)
    assert min(counts) <= 3
    assert max(counts) <= max_evaluations(sizes) + 1
    assert sum(counts) / len(counts) <= (max_evaluations(sizes) + 1 if sizes <= 3 else max_evaluations(sizes) + 0.3)


@given(st.integers(0, 1000))
def test_max_evaluations_is_the_number_that_bisection_needs(sizes):
    evaluations = max_evaluations(sizes)
    assert 2**evaluations >= sizes + 1
    assert sizes == 0 or 2 ** (evaluations - 1) < sizes + 1


def test_cheap_scores_are_corrected_by_measured_values():
    predicted = predict_values({1: 0.4, 2: 0.6, 3: 0.8, 4: 0.8}, {2: 0.3, 4: 0.8})
    assert predicted == pytest.approx({1: 0.2, 2: 0.3, 3: 0.6, 4: 0.8})
    assert predict_values({1: 0.0, 2: 0.5}, {1: 0.7, 2: 0.5})[1] == 0.0


@given(st.integers(1, 60), st.data())
def test_the_next_size_leaves_enough_measurements_either_way(count, data):
    candidates = sorted(data.draw(st.sets(st.integers(1, 500), min_size=count, max_size=count)))
    expected = dict(zip(candidates, data.draw(st.lists(values, min_size=count, max_size=count)), strict=True))
    left = max_evaluations(count) + data.draw(st.integers(0, 2))
    place = candidates.index(next_size(candidates, expected, data.draw(values), left))
    assert max_evaluations(place) <= left - 1
    assert max_evaluations(count - 1 - place) <= left - 1


def test_the_expected_size_is_measured_first_where_measurements_are_left():
    expected = {size: size / 10 for size in range(1, 8)}
    for size in expected:
        assert next_size(list(expected), expected, size / 10, left=4) == size
    assert [next_size(list(expected), expected, w, left=3) for w in (0.1, 0.7)] == [4, 4]
