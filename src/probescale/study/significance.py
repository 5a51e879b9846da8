"""Is one method better than another? Rows of dev and trainings are two sources of chance, and both count."""

from __future__ import annotations

import numpy as np

SIGNIFICANCE = 0.05  # p-values below this count as evidence
SMALLEST_P = 1e-12


def compare_methods(differences: np.ndarray) -> float | None:
    """The two-sided p-value for "on average over rows and trainings, both are equally good"; None of one training.

    `differences`, (trainings, rows): by how much the first method is better on a row. The mean is compared with a
    margin for the rows and one for the trainings, each by Student's t with its own degrees of freedom, added like
    independent errors. Where few rows differ, t is too sure, so an exact sign test over the rows has to agree.
    """
    trainings, rows = differences.shape
    if trainings < 2:
        return None  # how much another training would change is not known
    by_row, by_training = differences.mean(0), differences.mean(1)
    sign = sign_test(int((by_row > 0).sum()), int((by_row < 0).sum()))
    if rows < 2 or sign == 1:
        return 1.0
    errors = by_training.var(ddof=1) / trainings, by_row.var(ddof=1) / rows
    return max(sign, _p_of_mean(float(by_row.mean()), errors, (trainings - 1, rows - 1)))


def _p_of_mean(mean: float, errors: tuple[float, float], freedom: tuple[int, int]) -> float:
    """The p-value at which the mean equals both margins together: mean² = sum of errors * t(p)²."""
    from scipy.optimize import root_scalar
    from scipy.special import stdtrit

    def excess(p: float) -> float:
        margins = [error * stdtrit(degrees, p / 2) ** 2 for error, degrees in zip(errors, freedom, strict=True)]
        return mean**2 - sum(margins)

    if excess(SMALLEST_P) >= 0:
        return SMALLEST_P
    return float(root_scalar(excess, bracket=(SMALLEST_P, 1.0)).root) if mean else 1.0


def sign_test(wins: int, losses: int) -> float:
    """The p-value of an exact, two-sided sign test.

    >>> sign_test(0, 0), sign_test(5, 5), round(sign_test(10, 0), 4)
    (1.0, 1.0, 0.002)
    """
    from scipy.special import bdtr

    return min(2 * float(bdtr(min(wins, losses), wins + losses, 0.5)), 1.0)
