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
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from probescale.progress import progress
from probescale.tasks.metrics import Metric

TOLERANCE = 1e-6  # largest gradient component at which a probe counts as converged
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
    """One layer's probe. Validation rows take no part in choosing the penalty.

    The penalty is judged by log-loss: unlike accuracy it has no steps, so that rounding in the features (another batch
    size, say) does not turn the choice around.
    """
    chosen = penalties[0]
    if len(penalties) > 1:
        trials = {p: _fit(features[parts.fit], labels[parts.fit], p) for p in sorted(penalties)}
        chosen = min(trials, key=lambda p: _log_loss(trials[p], features[parts.judge], labels[parts.judge]))
    probe = _fit(features[parts.train], labels[parts.train], chosen)
    score = metric(labels[parts.validation], np.asarray(probe.predict(features[parts.validation])))
    steps = probe.named_steps["logisticregression"].n_iter_.max()
    return ProbeFit(score, chosen, bool(steps < MAX_STEPS))


def _fit(features: np.ndarray, labels: np.ndarray, penalty: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, tol=TOLERANCE, max_iter=MAX_STEPS)).fit(
        features, labels
    )


def _log_loss(probe: Pipeline, features: np.ndarray, labels: np.ndarray) -> float:
    """Mean loss over the rows whose class the probe has seen; a rare tag may be in one part only."""
    known = np.isin(labels, probe.classes_)
    column = np.searchsorted(probe.classes_, labels[known])
    return float(-probe.predict_log_proba(features[known])[np.arange(known.sum()), column].mean())
