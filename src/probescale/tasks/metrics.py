"""Metrics by name: functions of gold and predicted label numbers, higher is better."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import metrics

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Share of right answers."""
    return float(metrics.accuracy_score(gold, predicted))


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of every class, averaged: for unbalanced labels."""
    return float(metrics.f1_score(gold, predicted, average="macro"))


def matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Matthews correlation, as GLUE uses for CoLA."""
    return float(metrics.matthews_corrcoef(gold, predicted))


METRICS: dict[str, Metric] = {metric.__name__: metric for metric in (accuracy, macro_f1, matthews)}
