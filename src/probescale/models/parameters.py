"""How many parameters a model has and where; light, so that budgets need no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOST = 10**18  # so that shares are numbers
Size = Annotated[int, Field(gt=0, le=MOST)]


class Parameters(BaseModel):
    """Where a model's parameters sit. A subnetwork has the embeddings, the rest, and the layers it keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embeddings: int = Field(ge=0, le=MOST)
    layers: tuple[Size, ...] = Field(min_length=1)  # one number a layer
    rest: int = Field(ge=0, le=MOST)  # head, pooler, final norm, position biases shared by all layers
    decoder: tuple[Size, ...] = ()  # an encoder-decoder's second stack, one number a layer
    fixed: tuple[int, ...] = ()  # layers that every subnetwork has to keep
    original: Parameters | None = None  # of the model as it was, where parts beside the layers were made smaller

    @property
    def total(self) -> int:
        return self.of(self.all_layers)

    @property
    def all_layers(self) -> range:
        return range(1, len(self.layers) + 1)

    @property
    def minimum(self) -> int:
        """Parameters of the smallest subnetwork there is: one layer, or those that have to stay."""
        return self.of(self.fixed) if self.fixed else self.of([]) + min(self.layers)

    def of(self, kept: Iterable[int], decoder: Iterable[int] | None = None) -> int:
        """Parameters of the subnetwork with these layers (numbered from 1), and all of a decoder if not said otherwise.

        >>> Parameters(embeddings=100, layers=(10, 10, 10), rest=5).of([1, 3])
        125
        """
        second = self.decoder if decoder is None else [self.decoder[layer - 1] for layer in decoder]
        return self.embeddings + self.rest + sum(second) + self.in_layers(kept)

    def in_layers(self, kept: Iterable[int]) -> int:
        return sum(self.layers[layer - 1] for layer in kept)

    def ratios(self, kept: Sequence[int]) -> tuple[float, float]:
        """Share of the original's parameters, and of its parameters in layers."""
        whole = self.original or self
        return self.of(kept) / whole.total, self.in_layers(kept) / whole.in_layers(self.all_layers)
