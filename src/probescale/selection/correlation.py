"""How good a criterion is: whether it ranks subnetworks as they do when they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, spearmanr

from probescale.errors import UserError
from probescale.models.subsets import Subset
from probescale.utils.files import Record

DRAWS = 1000
SEED = 0
FEWEST = 4  # subsets that make a ranking


class Correlation(Record):
    """Spearman's rank correlation of what a criterion says with what was measured."""

    rho: float
    low: float  # 95 % bootstrap interval over the subsets
    high: float
    within: float | None  # among subsets of equally many layers; None: nowhere are there enough of them
    subsets: int


def rank_correlation(predicted: Mapping[Subset, float], measured: Mapping[Subset, float]) -> Correlation:
    """Compare two rankings of the subsets that both have. A constant criterion ranks nothing: 0.

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
    said, found = _values(predicted, common, "predicted"), _values(measured, common, "measured")
    low, high = _interval(said, found)
    return Correlation(
        rho=_spearman(said, found), low=low, high=high, within=_within(common, said, found), subsets=len(common)
    )


def _values(table: Mapping[Subset, float], subsets: Sequence[Subset], field: str) -> np.ndarray:
    """The values of these subsets, all of them numbers."""
    values = np.array([table[kept] for kept in subsets], dtype=float)
    if not np.isfinite(values).all():
        worst = int(np.argmin(np.isfinite(values)))
        raise UserError(
            f"the value of layers {subsets[worst]} is {values[worst]}", field=field, hint="give finite numbers"
        )
    return values


def _spearman(said: np.ndarray, found: np.ndarray) -> float:
    """Scipy's, with 0 where one side is constant and there is none."""
    if np.ptp(said) == 0 or np.ptp(found) == 0:
        return 0.0
    return float(spearmanr(said, found).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def _interval(said: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """The middle 95 % over resampled subsets, without draws that rank nothing; (0, 0) if there is no other."""
    draws = np.random.default_rng(SEED).integers(len(said), size=(DRAWS, len(said)))
    one, other = (rankdata(values[draws], axis=1) - (len(said) + 1) / 2 for values in (said, found))
    scale = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    rhos = (one * other).sum(1)[scale > 0] / scale[scale > 0]
    low, high = np.percentile(rhos, [2.5, 97.5]) if len(rhos) else (0.0, 0.0)
    return float(low), float(high)


def _within(subsets: Sequence[Subset], said: np.ndarray, found: np.ndarray) -> float | None:
    """The mean over numbers of layers, because more layers are better whatever the criterion says."""
    sizes = np.array([len(kept) for kept in subsets])
    counts = {k: int(np.sum(sizes == k)) for k in set(sizes.tolist()) if np.sum(sizes == k) >= FEWEST}
    if not counts:
        return None
    total = sum(count * _spearman(said[sizes == k], found[sizes == k]) for k, count in counts.items())
    return total / sum(counts.values())
