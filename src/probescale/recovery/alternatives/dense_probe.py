"""Linear probes on dense features, fitted as probes of layers are, but applied to features as they come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from probescale.config import ProbingConfig
from probescale.probing.probes.closed_form import LinearFit
from probescale.probing.probes.linear import LinearProbe
from probescale.recovery.alternatives.lessons import Lessons


def fit_dense_probe(lessons: Lessons, features: np.ndarray) -> LinearFit:
    """A linear probe with the default penalties of probing. Rows whose features are NaN are not learned from."""
    from sklearn.preprocessing import StandardScaler

    lessons = replace(lessons, answered=lessons.answered & ~np.isnan(features[:, 0]))
    scaler = StandardScaler().fit(features[lessons.answered])
    scaled = np.asarray(scaler.transform(features))
    with threadpool_limits(1):  # faster than several for products this short, and the same on every machine
        probe = lessons.fit(LinearProbe(), scaled, ProbingConfig().penalties)
    # The scale becomes part of the weights: a new text then needs only one product.
    scale, mean = np.asarray(scaler.scale_), np.asarray(scaler.mean_)
    weights = probe.weights / scale[:, None]
    bias = probe.bias - mean @ weights
    return replace(probe, weights=weights.astype(np.float32), bias=bias.astype(np.float32))
