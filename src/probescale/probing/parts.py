"""Which rows train a probe, which choose its penalty, and which give its score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probescale.errors import UserError
from probescale.probing.targets import ProbeLabels
from probescale.tasks.sampling import split_rows


@dataclass(frozen=True)
class Parts:
    """Row numbers. Train, which is `fit` + `judge`, and the validation rows, which give the score and nothing else."""

    fit: np.ndarray
    judge: np.ndarray
    validation: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """All rows, part by part: each is then one slice."""
        return np.concatenate([self.fit, self.judge, self.validation])

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        first, second = len(self.fit), len(self.fit) + len(self.judge)
        return slice(0, first), slice(first, second), slice(second, second + len(self.validation))


def check_parts(name: str, target: ProbeLabels, parts: Parts | None, groups: np.ndarray | None = None) -> Parts:
    if parts is None or len(np.unique(target.values[parts.fit], axis=0)) < 2:
        size = f"{len(target)} rows" if groups is None else f"{len(np.unique(groups))} different sentences"
        raise UserError(
            f'probe "{name}" has too little data ({size}) to be trained and tested',
            field="task.probes",
            hint="give it more examples of every class, or change probing.validation",
        )
    return parts


def split_parts(target: ProbeLabels, groups: np.ndarray | None, share: float, seed: int) -> Parts | None:
    """Validation out of train, and the same share again out of what remains to judge penalties.

    Rows of one group (a sentence's words) stay in one part. None when there is not enough for three parts.
    """
    first = _split(np.arange(len(target)), target, groups, share, seed)
    second = _split(first[0], target, groups, share, seed) if first else None
    if first is None or second is None:
        return None
    rng = np.random.default_rng(seed)
    return Parts(_shuffled(second[0], groups, rng), _shuffled(second[1], groups, rng), first[1])


def _split(
    rows: np.ndarray, target: ProbeLabels, groups: np.ndarray | None, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    owners = rows if groups is None else groups[rows]
    units = np.unique(owners)
    if not 1 <= round(share * len(units)) < len(units):
        return None
    classes = target.values[rows].tolist() if groups is None and target.kind == "class" else [0] * len(units)
    _, second = split_rows(classes, share, seed)
    is_second = np.isin(owners, units[second])
    return rows[~is_second], rows[is_second]


def _shuffled(rows: np.ndarray, groups: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """In random order, sentences whole: code lengths are measured along it."""
    owners = rows if groups is None else groups[rows]
    units, unit = np.unique(owners, return_inverse=True)
    return rows[np.argsort(rng.permutation(len(units))[unit], kind="stable")]
