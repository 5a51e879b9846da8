"""How much of a model's embeddings and feed-forward parts is kept. No heavy import, so that plans do not need torch."""

from __future__ import annotations

from probescale.utils.files import Record


class ShrinkPlan(Record):
    """How much of each part is kept; None keeps all of it."""

    vocabulary: int | None = None  # largest number of tokens
    rank: int | None = None  # embedding size
    units: int | None = None  # feed-forward width of every layer

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.vocabulary, self.rank, self.units))

    def __str__(self) -> str:
        """The sizes of the shrunk parts, for people.

        >>> str(ShrinkPlan(vocabulary=8000, rank=128))
        '8,000 tokens, embeddings 128 wide'
        """
        parts = [
            "" if self.vocabulary is None else f"{self.vocabulary:,} tokens",
            "" if self.rank is None else f"embeddings {self.rank} wide",
            "" if self.units is None else f"{self.units:,} feed-forward units per layer",
        ]
        return ", ".join(part for part in parts if part) or "all tokens, full width"
