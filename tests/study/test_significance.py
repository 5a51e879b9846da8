"""Methods that are equally good are called different at most as often as the level says: a calibration."""

from __future__ import annotations

import numpy as np
import pytest

from probescale.study.significance import SIGNIFICANCE, compare_methods

STUDIES = 200


def draw_study(
    rng: np.random.Generator, seeds: int, *, rows: int, of_rows: float, of_trainings: float, lead: float = 0.0
) -> np.ndarray:
    """(seeds, rows) which of two methods is right, as differences.

    `of_rows`: how much a method's skill on a row differs from the other's with any seed; `of_trainings`: how much one
    training differs from the next. On average over both, the first is better by about `lead`.
    """

    def answers(skill: float) -> np.ndarray:
        own = of_rows * rng.normal(size=rows) + of_trainings * rng.normal(size=(seeds, 1))
        return difficulty + own + skill + rng.logistic(size=(seeds, rows)) > 0

    difficulty = 2.0 + 2.0 * rng.normal(size=rows)
    return answers(lead).astype(float) - answers(0.0)


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("rows", "of_rows", "of_trainings"),
    [(300, 1.5, 0.0), (300, 0.0, 0.3), (30, 1.0, 0.15)],
    ids=["rows vary", "trainings vary", "both vary, few rows"],
)
def test_equally_good_methods_are_called_different_at_most_as_often_as_the_level(seeds, rows, of_rows, of_trainings):
    """A sign test that counts a row once per seed calls up to a third of them different."""
    rng = np.random.default_rng(seeds)
    found = [
        compare_methods(draw_study(rng, seeds, rows=rows, of_rows=of_rows, of_trainings=of_trainings))
        for _ in range(STUDIES)
    ]
    called = sum(p is not None and p < SIGNIFICANCE for p in found)
    assert called <= SIGNIFICANCE * STUDIES + 2 * (SIGNIFICANCE * (1 - SIGNIFICANCE) * STUDIES) ** 0.5
    assert seeds > 1 or called == 0, "one training is never enough"


@pytest.mark.parametrize(("seeds", "at_least"), [(3, 0.5), (5, 0.95)])
def test_a_clear_difference_is_found(seeds, at_least):
    rng = np.random.default_rng(0)
    found = [
        compare_methods(draw_study(rng, seeds, rows=500, of_rows=0.5, of_trainings=0.1, lead=1.0)) for _ in range(40)
    ]
    assert np.mean([p is not None and p < SIGNIFICANCE for p in found]) >= at_least


def test_one_training_says_nothing_of_the_method():
    assert compare_methods(np.ones((1, 1000))) is None


def test_seeds_that_repeat_each_other_add_nothing_about_rows():
    once = np.zeros((1, 400))
    once[0, :12], once[0, 12:18] = 1, -1  # a sign test of these rows has p = 0.24
    assert compare_methods(np.repeat(once, 5, axis=0)) == pytest.approx(0.238, abs=0.01)


@pytest.mark.parametrize("differences", [np.zeros((3, 10)), np.ones((3, 1)), np.tile([1.0, -1.0], (3, 5))])
def test_what_shows_no_difference_has_p_1(differences):
    assert compare_methods(differences) == 1


def test_few_rows_that_differ_are_judged_exactly():
    few = np.zeros((2, 900))
    few[:, :5] = 1  # Student's t alone would say 0.03
    assert compare_methods(few) == pytest.approx(2 / 2**5)
