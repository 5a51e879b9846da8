"""Linear probes: logistic regression on standardised states, to convergence, the L2 penalty chosen per layer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from probescale.progress import progress
from probescale.tasks.metrics import Metric

MAX_STEPS = 1000  # L-BFGS steps; a probe that uses them all is reported as not converged


@dataclass(frozen=True)
class Parts:
    """Row numbers: train, and the validation rows that give the score. `fit` + `judge` = train choose the penalty."""

    train: np.ndarray
    validation: np.ndarray
    fit: np.ndarray
    judge: np.ndarray


@dataclass(frozen=True)
class ProbeFit:
    score: float
    penalty: float  # scikit-learn's C
    converged: bool


def fit_probes(
    features: np.ndarray,
    labels: np.ndarray,
    parts: Parts,
    penalties: Sequence[float],
    metric: Metric,
    title: str = "probes",
) -> list[ProbeFit]:
    """A probe per layer; features are (layers, rows, hidden).

    Layers run side by side, each on one BLAS thread: many short matrix products cost far more in hand-over between
    threads than they gain.
    """
    fit = partial(fit_probe, labels=labels, parts=parts, penalties=penalties, metric=metric)
    fits = []
    with (
        warnings.catch_warnings(),
        threadpool_limits(1),
        ThreadPoolExecutor(os.cpu_count()) as threads,
        progress(title, len(features)) as advance,
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # recorded per probe instead
        for done in threads.map(fit, features):
            fits.append(done)
            advance(1)
    return fits


def fit_probe(
    features: np.ndarray, labels: np.ndarray, parts: Parts, penalties: Sequence[float], metric: Metric
) -> ProbeFit:
    """One layer's probe. Validation rows take no part in choosing the penalty."""

    def trial(penalty: float, train: np.ndarray, held_out: np.ndarray) -> ProbeFit:
        return _fit(features, labels, train, held_out, penalty, metric)

    chosen = penalties[0]
    if len(penalties) > 1:
        trials = [trial(penalty, parts.fit, parts.judge) for penalty in sorted(penalties)]
        chosen = max(trials, key=lambda fit: fit.score).penalty  # ties go to the stronger penalty
    return trial(chosen, parts.train, parts.validation)


def _fit(
    features: np.ndarray,
    labels: np.ndarray,
    train: np.ndarray,
    held_out: np.ndarray,
    penalty: float,
    metric: Metric,
) -> ProbeFit:
    scaler = StandardScaler().fit(features[train])
    probe = LogisticRegression(C=penalty, max_iter=MAX_STEPS)
    probe.fit(scaler.transform(features[train]), labels[train])
    score = metric(labels[held_out], np.asarray(probe.predict(scaler.transform(features[held_out]))))
    return ProbeFit(score, penalty, bool(probe.n_iter_.max() < MAX_STEPS))
