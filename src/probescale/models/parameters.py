"""Parameter counts of a model and its subnetworks. No heavy import, so that budgets do not need torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_PARAMETERS = 10**18  # keeps shares finite
Size = Annotated[int, Field(gt=0, le=MAX_PARAMETERS)]


class Parameters(BaseModel):
    """Parameters of each part of a model. A subnetwork has the embeddings, the rest, and the layers it keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embeddings: int = Field(ge=0, le=MAX_PARAMETERS)
    layers: tuple[Size, ...] = Field(min_length=1)  # one count per layer
    rest: int = Field(ge=0, le=MAX_PARAMETERS)  # head, pooler, final norm, position biases shared by all layers
    decoder: tuple[Size, ...] = ()  # layers of a decoder, one count per layer
    fixed: tuple[int, ...] = ()  # layers that every subnetwork must keep
    original: Parameters | None = None  # of the original model, where other parts than layers were shrunk

    @property
    def total(self) -> int:
        return self.of(self.all_layers)

    @property
    def all_layers(self) -> range:
        """The numbers of all layers."""
        return range(1, len(self.layers) + 1)

    @property
    def minimum(self) -> int:
        """Parameters of the smallest subnetwork: one layer, or the layers that must stay."""
        return self.of(self.fixed) if self.fixed else self.of([]) + min(self.layers)

    def of(self, kept: Iterable[int], decoder: Iterable[int] | None = None) -> int:
        """Parameters of the subnetwork with these layers (numbered from 1) and these of a decoder (None: all).

        >>> Parameters(embeddings=100, layers=(10, 10, 10), rest=5).of([1, 3])
        125
        """
        decoder_sizes = self.decoder if decoder is None else [self.decoder[layer - 1] for layer in decoder]
        return self.embeddings + self.rest + sum(decoder_sizes) + self.in_layers(kept)

    def in_layers(self, kept: Iterable[int]) -> int:
        """Parameters of these layers alone."""
        return sum(self.layers[layer - 1] for layer in kept)

    def ratios(self, kept: Sequence[int]) -> tuple[float, float]:
        """The subnetwork's share of the original's parameters, and of its parameters in layers."""
        original = self.original or self
        return self.of(kept) / original.total, self.in_layers(kept) / original.in_layers(self.all_layers)
