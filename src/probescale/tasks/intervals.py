"""95 % intervals of metrics over the examples; the chance in a training is not in them.

A share of right answers has an exact interval (Clopper and Pearson), which also holds for few examples and where all
are right. Tags of one sentence are not independent: their share has the interval of so many independent answers as
would vary as much (Korn and Graubard). Other metrics are resampled.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probescale.tasks.metrics import Metric

DRAWS = 1000  # of the bootstrap
TAIL = 0.025  # on either side
# Rows answered at random that are added before a class metric is resampled: without them 20 right answers of 20 could
# not vary. For two equal classes these are Agresti and Coull's two right and two wrong answers.
DOUBT = 4


def interval(metric: Metric, gold: np.ndarray, predicted: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95 % interval of a metric; of a single example of a metric that is no share, its value twice."""
    rows = metric.rows(gold, predicted)
    if metric.share is not None:
        return share_interval(*metric.share(rows).T)
    ends = [metric.value(rows)] * 2  # a biased metric can lie beyond what is drawn
    if len(gold) > 1:
        rng = np.random.default_rng(seed)
        ends += _percentiles(metric.value(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(DRAWS))
        if metric.kind in ("class", "labels"):
            at_random = metric.rows(gold, predicted[rng.permutation(len(gold))])
            ends += _percentiles(metric.value(_draw_in_doubt(rows, at_random, rng)) for _ in range(DRAWS))
    return min(ends), max(ends)


def retention_interval(
    metric: Metric, gold: np.ndarray, predicted: np.ndarray, original: np.ndarray, seed: int, together: int = 1
) -> tuple[float, float] | None:
    """95 % bootstrap interval of the retention: both models answer the same resampled examples.

    `together`: how many such intervals hold at once, 19 times of 20 (Bonferroni's correction), where one of several
    models is chosen by them. None where a resample leaves no share to name.
    """
    small, whole = (metric.rows(gold, answers) for answers in (predicted, original))
    rng, count = np.random.default_rng(seed), len(gold)
    shares: list[float] = []
    for drawn in (rng.integers(count, size=count) for _ in range(together * DRAWS if count > 1 else 1)):
        share = metric.retention(float(metric.value(small[drawn])), float(metric.value(whole[drawn])))
        if share is None:
            return None
        shares.append(share)
    low, high = _percentiles(shares, TAIL / together)
    return low, high


def paired_interval(first: np.ndarray, second: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean of `first` minus `second`, both between 0 and 1, measured on the same rows.

    Rows of one group are not independent. The interval is the wider one of two: Student's t over the means of the
    groups, and Agresti and Min's over the rows, which also holds where the two never differ.

    >>> low, high = paired_interval(np.ones(20), np.ones(20), np.arange(20))
    >>> round(low, 3), round(high, 3)
    (-0.089, 0.089)
    """
    from scipy.special import stdtrit

    differences, rows = first - second, len(first)
    middle = differences.sum() / (rows + 2)  # a half row is added to each of right and wrong, in both
    variance = ((differences**2).sum() + 1) / (rows + 2) - middle**2
    margin = stdtrit(np.inf, 1 - TAIL) * (variance / (rows + 2)) ** 0.5
    ends = [middle - margin, middle + margin]
    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(counts) > 1:
        mean = differences.mean()
        residuals = np.bincount(numbers, weights=differences - mean)
        error = (len(counts) / (len(counts) - 1) * (residuals**2).sum()) ** 0.5 / rows
        ends += [mean + sign * stdtrit(len(counts) - 1, 1 - TAIL) * error for sign in (-1, 1)]
    return max(float(min(ends)), -1.0), min(float(max(ends)), 1.0)


def _percentiles(values: Iterable[float], tail: float = TAIL) -> list[float]:
    return np.quantile(list(values), (tail, 1 - tail)).tolist()


def _draw_in_doubt(rows: np.ndarray, at_random: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many rows as there are and DOUBT more; about DOUBT of them are answered at random."""
    drawn = rng.integers(len(rows), size=len(rows) + DOUBT)
    doubted = rng.random(len(drawn)) < DOUBT / len(drawn)
    return np.where(doubted[:, None], at_random[drawn], rows[drawn])


def share_interval(right: np.ndarray, total: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a share: `right` of `total` answers in each group, where groups are independent.

    >>> low, high = share_interval(np.ones(20), np.ones(20))
    >>> round(low, 3), high
    (0.832, 1.0)
    """
    from scipy.special import betaincinv

    if not total.sum():
        return 0.0, 1.0  # nothing was measured
    size = _effective_size(right, total)
    hits = size * right.sum() / total.sum()
    low = betaincinv(hits, size - hits + 1, TAIL) if right.any() else 0.0
    high = betaincinv(hits + 1, size - hits, 1 - TAIL) if (right < total).any() else 1.0
    return float(low), float(high)


def _effective_size(right: np.ndarray, total: np.ndarray) -> float:
    """How many independent answers vary as much as these: at least one per group, at most all of them."""
    from scipy.special import ndtri, stdtrit

    answers = total.sum()
    fewest = answers**2 / (total**2).sum()  # the number of groups, where they are of equal size
    mixed = min((right > 0).sum(), (right < total).sum())  # groups that show how answers vary
    if mixed == 0 or fewest == answers:
        return float(fewest)
    share = right.sum() / answers
    variance = max(((right - share * total) ** 2).sum() / answers**2, share * (1 - share) / answers)
    few_groups = ndtri(TAIL) / stdtrit(max(mixed - 1, 1), TAIL)
    return float(max(share * (1 - share) / variance * few_groups**2, fewest))
