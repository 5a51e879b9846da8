"""How good a criterion is: whether it ranks subnetworks as their measured values do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, spearmanr

from probescale.errors import UserError
from probescale.models.subsets import Subset
from probescale.utils.files import Record

DRAWS = 1000
SEED = 0
FEWEST = 4  # subsets that a ranking needs


class Correlation(Record):
    """Spearman's rank correlation between predicted and measured values."""

    rho: float
    low: float  # 95 % bootstrap interval over the subsets
    high: float
    within: float | None  # among subsets with the same number of layers; None: too few of them
    subsets: int


def rank_correlation(predicted: Mapping[Subset, float], measured: Mapping[Subset, float]) -> Correlation:
    """The rank correlation over the subsets that both have; 0 where one side is constant.

    >>> predicted = {(1,): 0.1, (2,): 0.4, (1, 2): 0.5, (1, 3): 0.7}
    >>> rank_correlation(predicted, {kept: value**2 for kept, value in predicted.items()}).rho
    1.0
    """
    common = sorted(predicted.keys() & measured.keys())
    if len(common) < FEWEST:
        raise UserError(
            f"{len(common)} subsets were measured and predicted, of {len(measured)} measured ones",
            field="measured",
            hint=f"measure at least {FEWEST} subsets for which there is a prediction",
        )
    x, y = _values(predicted, common, "predicted"), _values(measured, common, "measured")
    low, high = _interval(x, y)
    return Correlation(rho=_spearman(x, y), low=low, high=high, within=_within(common, x, y), subsets=len(common))


def _values(table: Mapping[Subset, float], subsets: Sequence[Subset], field: str) -> np.ndarray:
    """The values of these subsets; refused where one is not finite."""
    values = np.array([table[kept] for kept in subsets], dtype=float)
    if not np.isfinite(values).all():
        worst = int(np.argmin(np.isfinite(values)))
        raise UserError(
            f"the value of layers {subsets[worst]} is {values[worst]}", field=field, hint="give finite numbers"
        )
    return values


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Scipy's rank correlation, or 0 where one side is constant and none is defined."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(spearmanr(x, y).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def _interval(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval over subsets. Draws with a constant side are left out; (0, 0) if all have one."""
    draws = np.random.default_rng(SEED).integers(len(x), size=(DRAWS, len(x)))
    x_ranks, y_ranks = (rankdata(values[draws], axis=1) - (len(x) + 1) / 2 for values in (x, y))  # centred
    scale = np.sqrt((x_ranks**2).sum(1) * (y_ranks**2).sum(1))
    rhos = (x_ranks * y_ranks).sum(1)[scale > 0] / scale[scale > 0]
    low, high = np.percentile(rhos, [2.5, 97.5]) if len(rhos) else (0.0, 0.0)
    return float(low), float(high)


def _within(subsets: Sequence[Subset], x: np.ndarray, y: np.ndarray) -> float | None:
    """The mean correlation per number of layers: any criterion that prefers more layers would correlate otherwise."""
    sizes = np.array([len(kept) for kept in subsets])
    counts = {k: int(np.sum(sizes == k)) for k in set(sizes.tolist()) if np.sum(sizes == k) >= FEWEST}
    if not counts:
        return None
    total = sum(count * _spearman(x[sizes == k], y[sizes == k]) for k, count in counts.items())
    return total / sum(counts.values())
