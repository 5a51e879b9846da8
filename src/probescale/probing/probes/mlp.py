"""A non-linear probe: scikit-learn's multi-layer perceptron with one hidden layer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

from probescale.probing.probes.base import Probe, probe
from probescale.probing.targets import ProbeLabels

HIDDEN = 64  # units
MAX_STEPS = 200  # passes over the data
SMALLEST = 1e-9  # lower bound of probabilities, so that logits are finite


@dataclass(frozen=True)
class MlpFit:
    """A trained network."""

    model: MLPClassifier | MLPRegressor
    target: ProbeLabels  # of the training rows: gives the outputs their meaning
    penalty: float
    steps: int
    gap: float  # last change of the loss
    converged: bool

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Logits in the same form as a linear probe's."""
        if isinstance(self.model, MLPRegressor):
            return np.reshape(self.model.predict(features), (-1, 1))
        probabilities = self.model.predict_proba(features)
        if self.target.kind == "multi":
            p = np.clip(probabilities, SMALLEST, 1 - SMALLEST)
            return np.log(p / (1 - p))
        by_class = np.full((len(features), len(self.target.names)), SMALLEST)
        by_class[:, self.model.classes_.astype(int)] = np.maximum(probabilities, SMALLEST)
        logits = np.log(by_class)
        return logits[:, 1:] - logits[:, :1] if self.target.columns == 1 else logits


@probe("mlp")
class MlpProbe(Probe[MlpFit]):
    """A network with one hidden layer of 64 units."""

    def fit(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalty: float,
        start: MlpFit | None = None,
        *,
        rough: bool = False,
    ) -> MlpFit:
        """Train with fixed initial weights and order of rows; scikit-learn decides when to stop."""
        cls = MLPRegressor if target.kind == "number" else MLPClassifier
        model = cls(hidden_layer_sizes=(HIDDEN,), alpha=1 / penalty, max_iter=MAX_STEPS, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `converged` records it
            model.fit(features, target.values)
        curve = model.loss_curve_
        change = abs(curve[-1] - curve[-2]) if len(curve) > 1 else 0.0
        return MlpFit(model, target, penalty, int(model.n_iter_), float(change), bool(model.n_iter_ < MAX_STEPS))
