"""Split rows into three parts: to fit a probe, to choose its penalty, and to score it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probescale.errors import UserError
from probescale.probing.targets import ProbeLabels
from probescale.tasks.sampling import split_rows


@dataclass(frozen=True)
class Parts:
    """Row numbers of the parts. `fit` + `tuning` are the training rows; `validation` rows only give the score."""

    fit: np.ndarray
    tuning: np.ndarray  # chooses the penalty
    validation: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """All rows, part by part, so that each part is one slice."""
        return np.concatenate([self.fit, self.tuning, self.validation])

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        """The fit, tuning and validation parts of rows in this order."""
        first, second = len(self.fit), len(self.fit) + len(self.tuning)
        return slice(0, first), slice(first, second), slice(second, second + len(self.validation))


def check_parts(name: str, target: ProbeLabels, parts: Parts | None, groups: np.ndarray | None = None) -> Parts:
    """The parts; UserError where there are none, or where all rows to fit have the same label."""
    if parts is None or len(np.unique(target.values[parts.fit], axis=0)) < 2:
        size = f"{len(target)} rows" if groups is None else f"{len(np.unique(groups))} different sentences"
        raise UserError(
            f'probe "{name}" has too little data ({size}) to be trained and tested',
            field="task.probes",
            hint="give it more examples of every class, or change probing.validation",
        )
    return parts


def split_parts(target: ProbeLabels, groups: np.ndarray | None, share: float, seed: int) -> Parts | None:
    """Split off a share for validation, and the same share of the remaining rows for tuning.

    Rows of one group (the words of a sentence) stay in one part. None when there are too few rows for three parts.
    """
    first = _split(np.arange(len(target)), target, groups, share, seed)
    second = _split(first[0], target, groups, share, seed) if first else None
    if first is None or second is None:
        return None
    rng = np.random.default_rng(seed)
    return Parts(_shuffle(second[0], groups, rng), _shuffle(second[1], groups, rng), first[1])


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


def _shuffle(rows: np.ndarray, groups: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Rows in random order, as code lengths need it; sentences stay together."""
    owners = rows if groups is None else groups[rows]
    units, unit = np.unique(owners, return_inverse=True)
    return rows[np.argsort(rng.permutation(len(units))[unit], kind="stable")]
