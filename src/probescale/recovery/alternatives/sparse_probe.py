"""Linear probes on sparse features, such as counts of words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from probescale.probing.probes import Probe
from probescale.probing.probes.closed_form import LinearFit
from probescale.probing.targets import ProbeLabels

# scikit-learn's L-BFGS stops when the largest entry of the gradient is below this. Rare words have small gradients:
# with its default of 1e-4, accuracy on SST-2 is up to a point lower.
TOLERANCE = 1e-5
# With several classes and many features SAGA is faster, and a rough solution as good. Measured with 77 classes, 63,000
# texts and 86,000 features: 5 seconds (12 with a tolerance of 1e-3, same accuracy); L-BFGS was far from done after 33.
ROUGH_TOLERANCE = 1e-2
MANY_WEIGHTS = 20_000  # from here on, SAGA


class SparseProbe(Probe[LinearFit]):
    """Logistic regression, or ridge regression for numbers. The linear probe for dense states inverts a covariance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(
        self,
        features: Any,  # noqa: ANN401 - a sparse matrix
        target: ProbeLabels,
        penalty: float,
        start: LinearFit | None = None,
        *,
        rough: bool = False,
    ) -> LinearFit:
        if target.kind == "number":
            weights, bias = _fit_ridge(features, target.values, penalty)
        elif target.columns > 1 and target.kind == "class":
            weights, bias = self._fit_classes(features, target, penalty)
        else:
            columns = target.values.reshape(len(target), -1)
            fits = [self._fit_column(features, column, penalty) for column in columns.T]
            weights, bias = (np.stack(parts, -1) for parts in zip(*fits, strict=True))
        return LinearFit(weights.astype(np.float32), bias.astype(np.float32), penalty, 1, 0.0, True)

    def fit_path(
        self,
        features: Any,  # noqa: ANN401 - a sparse matrix
        target: ProbeLabels,
        penalties: Sequence[float],
        tuning: tuple[Any, ProbeLabels],
    ) -> LinearFit:
        """From strong to weak penalties, until one is worse on the tuning rows: the weak ones take longest."""
        best, lowest = None, np.inf
        for penalty in sorted(penalties):
            fit = self.fit(features, target, penalty)
            loss = tuning[1].loss(fit(tuning[0]), len(target))
            if loss >= lowest:
                break
            best, lowest = fit, loss
        assert best is not None
        return best

    def _fit_column(self, features: Any, values: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401
        """(features,) weights and a bias for one label of yes or no."""
        if len(np.unique(values)) < 2:
            return np.zeros(features.shape[1]), np.array(np.inf if values[0] else -np.inf)
        fitted = self._fit_logistic(features, values, penalty, columns=1)
        return fitted.coef_[0], fitted.intercept_[0]

    def _fit_classes(self, features: Any, target: ProbeLabels, penalty: float) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401
        """(features, classes) weights and biases; a class without any row is never predicted."""
        present = np.unique(target.values)
        weights, bias = np.zeros((features.shape[1], target.columns)), np.full(target.columns, -np.inf)
        bias[present] = 0
        if len(present) > 1:
            fitted = self._fit_logistic(features, target.values, penalty, columns=len(present))
            fitted_columns = present[-len(fitted.coef_) :]  # of two classes, scikit-learn has weights for the second
            weights[:, fitted_columns], bias[fitted_columns] = fitted.coef_.T, fitted.intercept_
        return weights, bias

    def _fit_logistic(self, features: Any, values: np.ndarray, penalty: float, columns: int) -> Any:  # noqa: ANN401
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        options: dict[str, Any] = {"tol": TOLERANCE, "max_iter": 1000}
        if columns > 1 and features.shape[1] * columns > MANY_WEIGHTS:
            options = {"solver": "saga", "tol": ROUGH_TOLERANCE, "max_iter": 50, "random_state": self.seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a regression that is not quite done predicts as well
            return LogisticRegression(C=penalty, **options).fit(features, values)


def _fit_ridge(features: Any, values: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:  # noqa: ANN401
    from sklearn.linear_model import Ridge

    fitted = Ridge(alpha=1 / penalty).fit(features, values)
    return fitted.coef_[:, None], np.array([fitted.intercept_])
