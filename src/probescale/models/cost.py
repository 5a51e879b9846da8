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
    units: int | None = None  # feed-forward width of the layers; None: it cannot change
    per_unit: float = 0.0  # of one feed-forward unit of a layer

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

    def narrowed(self, units: int | None) -> Cost:
        """The same for layers with this feed-forward width; None: as wide as they are.

        >>> Cost(fixed=1.0, layers=(8.0, 8.0), units=100, per_unit=0.05).narrowed(20).layers
        (4.0, 4.0)
        """
        if units is None or self.units is None:
            return self
        saved = (self.units - units) * self.per_unit
        layers = tuple(layer - saved for layer in self.layers)
        return self.model_copy(update={"layers": layers, "original": self.total, "units": units})

    def scaled(self, factor: float) -> Cost:
        """The same costs in another unit."""
        original = None if self.original is None else self.original * factor
        return Cost(fixed=self.fixed * factor, layers=tuple(layer * factor for layer in self.layers), original=original)


def parameter_cost(parameters: Parameters) -> Cost:
    """The cost in parameters."""
    original = parameters.original.total if parameters.original else None
    return Cost(fixed=parameters.of([]), layers=parameters.layers, original=original)
