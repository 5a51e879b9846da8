"""From which logit on a text gets a label, where it can have several.

The thresholds are chosen on texts that nothing learned from, so that the task's F1 is highest there. Then they are
moved into the output layer: a label is given from a logit of 0, a probability of one half, on. So stock pipelines and
exported graphs need not know them.
"""

from __future__ import annotations

import numpy as np
import torch

from probescale.models.loading import LoadedModel
from probescale.recovery.inputs import build_inputs
from probescale.recovery.label_scale import find_output_layer
from probescale.recovery.predict import compute_logits
from probescale.tasks.data import Data

FARTHEST = 30.0  # from 0: a label that no training text has can have a logit of minus infinity
FEWEST = 10  # texts with a label, and without it, from which on it has a threshold of its own


def choose_thresholds(logits: np.ndarray, labels: np.ndarray, *, macro: bool = False) -> np.ndarray:
    """(labels,) the logits above which labels are given, with the highest F1 for (texts, labels) logits and labels.

    First one threshold for all labels, then another for each label with enough texts: that with the highest F1 of all
    labels together or, with `macro`, of this label alone.
    """
    logits = logits.clip(-FARTHEST, FARTHEST)
    common = _best_threshold(logits.ravel(), labels.ravel(), np.zeros(3))
    chosen = np.full(logits.shape[1], common)
    counts = np.stack([_count(logits[:, n], labels[:, n], common) for n in range(len(chosen))])
    for number, column in enumerate(labels.T):
        if min(column.sum(), (1 - column).sum()) >= FEWEST:
            others = np.zeros(3) if macro else counts.sum(0) - counts[number]
            chosen[number] = _best_threshold(logits[:, number], column, others)
            counts[number] = _count(logits[:, number], column, chosen[number])
    return chosen


def _count(logits: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """The number of right, predicted and real labels."""
    given = logits > threshold
    return np.array([(given * labels).sum(), given.sum(), labels.sum()], float)


def _best_threshold(logits: np.ndarray, labels: np.ndarray, others: np.ndarray) -> float:
    """The threshold with the highest F1, in the middle between two logits. `others`: the counts of other labels."""
    order = np.argsort(-logits, kind="stable")
    ranked, right = logits[order], np.cumsum(labels[order])
    f1 = 2 * (others[0] + right) / (others[1] + np.arange(1, len(ranked) + 1) + others[2] + labels.sum())
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # no threshold lies between equal logits
    best = int(np.argmax(f1))
    return float(ranked[best : best + 2].mean()) if best + 1 < len(ranked) else float(ranked[best] - 1)


def set_thresholds(loaded: LoadedModel, tuning: Data, *, macro: bool = False, max_length: int = 128) -> None:
    """Choose thresholds on these texts and move them into the output layer; one without a bias stays as it is."""
    layer = find_output_layer(loaded.model)
    if layer.bias is None:
        return
    inputs = build_inputs(loaded.tokenizer, tuning, max_length)
    logits = compute_logits(loaded, inputs, title="choosing thresholds")
    chosen = choose_thresholds(logits, tuning.row_labels, macro=macro)
    with torch.no_grad():
        layer.bias.sub_(torch.from_numpy(chosen).to(layer.bias))
    shares = 1 / (1 + np.exp(-chosen))
    loaded.thresholds = dict(zip(tuning.names, shares.round(4).tolist(), strict=True))
