"""Metrics by name: functions of gold and predicted label numbers, higher is better.

scikit-learn is imported when a metric is computed, not when its name is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Share of right answers."""
    return float(np.mean(gold == predicted))


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of every class, averaged: for unbalanced labels."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, average="macro"))


def matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Matthews correlation, as GLUE uses for CoLA."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(gold, predicted))


def interval(metric: Metric, gold: np.ndarray, predicted: np.ndarray, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of a metric over the examples it was measured on; of one example, its value."""
    from scipy.stats import bootstrap

    if len(gold) < 2:
        return metric(gold, predicted), metric(gold, predicted)
    draws = {"n_resamples": 1000, "batch": 100, "method": "percentile", "rng": seed}  # in batches: memory stays flat
    found = bootstrap((gold, predicted), metric, paired=True, vectorized=False, **draws)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


METRICS: dict[str, Metric] = {metric.__name__: metric for metric in (accuracy, macro_f1, matthews)}
