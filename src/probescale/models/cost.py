"""What a subnetwork costs in one unit: something fixed, and something for every layer it keeps."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from probescale.models.parameters import Parameters


class Cost(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: float
    layers: tuple[float, ...]  # one number a layer
    original: float | None = None  # of the whole model, where parts beside the layers were made smaller

    def of(self, kept: Iterable[int]) -> float:
        """
        >>> Cost(fixed=1.0, layers=(2.0, 3.0, 4.0)).of([1, 3])
        7.0
        """
        return self.fixed + sum(self.layers[layer - 1] for layer in kept)

    @property
    def total(self) -> float:
        """What shares are shares of."""
        return self.fixed + sum(self.layers) if self.original is None else self.original

    def scaled(self, factor: float) -> Cost:
        original = None if self.original is None else self.original * factor
        return Cost(fixed=self.fixed * factor, layers=tuple(layer * factor for layer in self.layers), original=original)


def parameter_cost(parameters: Parameters) -> Cost:
    original = parameters.original.total if parameters.original else None
    return Cost(fixed=parameters.of([]), layers=parameters.layers, original=original)
