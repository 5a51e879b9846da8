"""The interface of every kind of probe, and the registry of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from probescale.probing.targets import ProbeLabels


class FittedProbe(Protocol):
    """A trained probe: a function from features (rows, hidden) to logits (rows, target.columns)."""

    @property
    def penalty(self) -> float:
        """The penalty of its training, as scikit-learn's C."""
        ...

    @property
    def steps(self) -> int: ...

    @property
    def gap(self) -> float:
        """Estimate of how much the loss could still fall."""
        ...

    @property
    def converged(self) -> bool: ...

    def __call__(self, features: np.ndarray) -> np.ndarray: ...


F = TypeVar("F", bound=FittedProbe)


class Probe(ABC, Generic[F]):
    """How a kind of probe is trained. Each site gets a new object, so that its fits may share what they compute.

    The first line of a subclass's docstring is the help shown by `probescale list probes`.
    """

    @abstractmethod
    def fit(
        self, features: np.ndarray, target: ProbeLabels, penalty: float, start: F | None = None, *, rough: bool = False
    ) -> F:
        """Train on all given rows, from the weights of `start` if that helps; `rough` fits only compare penalties."""

    def fit_path(
        self,
        features: np.ndarray,
        target: ProbeLabels,
        penalties: Sequence[float],
        tuning: tuple[np.ndarray, ProbeLabels],
    ) -> F:
        """The rough fit whose penalty has the lowest loss on the tuning rows."""
        fits = [self.fit(features, target, penalty, rough=True) for penalty in sorted(penalties)]
        return min(fits, key=lambda fit: tuning[1].loss(fit(tuning[0]), len(features)))


PROBES: dict[str, type[Probe]] = {}
P = TypeVar("P", bound=type[Probe])


def probe(name: str) -> Callable[[P], P]:
    """Register a Probe under a name that `probing.probe` accepts."""

    def register(kind: P) -> P:
        PROBES[name] = kind
        return kind

    return register
