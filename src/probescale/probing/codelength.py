"""Online (prequential) code length: bits needed to transmit the labels with a probe that is retrained on the way.

Voita & Titov (2020). The first block of rows costs log2 K bits per row. Then a probe trained on all rows so far encodes
the next block, which doubles the number of known rows. A probe that learns from few rows needs few bits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from probescale.probing.targets import ProbeLabels

FIRST_ROWS = 32  # smallest first block, which is encoded without a probe

Logits = Callable[[np.ndarray], np.ndarray]
Train = Callable[[np.ndarray, ProbeLabels], Logits]


def online_code_length(train: Train, features: np.ndarray, target: ProbeLabels) -> float:
    """Bits for all labels. `train` fits a probe on the first rows; rows must be in random order."""
    ends = block_ends(len(target))
    bits = uniform_code_length(target[: ends[0]])
    for known, end in pairwise(ends):
        probe = train(features[:known], target[:known])
        bits += float(target[known:end].surprisal(probe(features[known:end]), trained_on=known).sum())
    return bits


def uniform_code_length(target: ProbeLabels) -> float:
    """Bits for all labels without a probe: N log2 K; with several labels per row, one bit per label."""
    per_row = len(target.names) if target.kind == "multi" else np.log2(len(target.names))
    return float(len(target) * per_row)


def block_ends(rows: int) -> list[int]:
    """Number of rows up to the end of each block.

    >>> block_ends(1000)
    [62, 125, 250, 500, 1000]
    """
    ends = [rows]
    while ends[0] // 2 >= FIRST_ROWS:
        ends.insert(0, ends[0] // 2)
    return ends
