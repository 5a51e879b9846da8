"""The cost of subnetworks in one unit: a fixed part, and a part for every kept layer."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from probescale.models.parameters import Parameters


class Cost(BaseModel):
    """Costs in one unit, such as GFLOPs or milliseconds, from which the cost of any subnetwork follows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: float
    layers: tuple[float, ...]  # one value per layer
    original: float | None = None  # of the original model, where other parts than layers were shrunk

    def of(self, kept: Iterable[int]) -> float:
        """The cost of the subnetwork with these layers (numbered from 1).

        >>> Cost(fixed=1.0, layers=(2.0, 3.0, 4.0)).of([1, 3])
        7.0
        """
        return self.fixed + sum(self.layers[layer - 1] for layer in kept)

    @property
    def total(self) -> float:
        """The cost of the original model, which shares refer to."""
        return self.fixed + sum(self.layers) if self.original is None else self.original

    def scaled(self, factor: float) -> Cost:
        """The same costs in another unit."""
        original = None if self.original is None else self.original * factor
        return Cost(fixed=self.fixed * factor, layers=tuple(layer * factor for layer in self.layers), original=original)


def parameter_cost(parameters: Parameters) -> Cost:
    """The cost in parameters."""
    original = parameters.original.total if parameters.original else None
    return Cost(fixed=parameters.of([]), layers=parameters.layers, original=original)
