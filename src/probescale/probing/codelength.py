"""Online (prequential) code length: how many bits tell a receiver the labels, if both retrain the probe as they go.

Voita & Titov (2020). The first rows are sent at log2 K bits each; then a probe trained on all rows so far codes the
next as many again, doubling until the end. A probe that learns fast from few rows needs few bits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from probescale.probing.targets import ProbeLabels

FIRST_ROWS = 32  # sent without a probe, at least

Logits = Callable[[np.ndarray], np.ndarray]
Train = Callable[[np.ndarray, ProbeLabels], Logits]


def online_code_length(train: Train, features: np.ndarray, target: ProbeLabels) -> float:
    """Bits for all labels. `train` gives a probe for the first rows; rows are in random order."""
    ends = blocks(len(target))
    bits = uniform_code_length(target[: ends[0]])
    for known, end in pairwise(ends):
        probe = train(features[:known], target[:known])
        bits += float(target[known:end].surprise(probe(features[known:end]), trained_on=known).sum())
    return bits


def uniform_code_length(target: ProbeLabels) -> float:
    """N log2 K; of several labels a row, one bit each."""
    per_row = len(target.names) if target.kind == "multi" else np.log2(len(target.names))
    return float(len(target) * per_row)


def blocks(rows: int) -> list[int]:
    """Where the blocks end.

    >>> blocks(1000)
    [62, 125, 250, 500, 1000]
    """
    ends = [rows]
    while ends[0] // 2 >= FIRST_ROWS:
        ends.insert(0, ends[0] // 2)
    return ends
