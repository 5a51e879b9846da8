"""How sure a selection is: the same choice on resampled held-out rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from probescale.models.subsets import Subset

CLOSE = 0.95  # chosen less often than this, a set is within the noise of others


class Certainty(BaseModel):
    model_config = ConfigDict(frozen=True)

    draws: int
    layers: tuple[float, ...]  # how often each layer is kept, layer 1 first
    same: float  # how often this very set wins
    other: Subset | None = None  # the set that wins most often beside it
    other_share: float = 0.0

    @property
    def close(self) -> bool:
        return self.same < CLOSE

    def sentence(self) -> str:
        """What a person should know of it."""
        how = f"it is chosen in {self.same:.0%} of {self.draws} resamples of the held-out rows"
        if not self.close or self.other is None:
            return f"Sure: {how}."
        return f"Within the noise: {how}, layers {', '.join(map(str, self.other))} in {self.other_share:.0%}."


def certainty_of(kept: Subset, layers: int, again: Sequence[Subset]) -> Certainty | None:
    """What was chosen, against what every resample chose; None where there are none."""
    found = Counter(again)
    if not again:
        return None
    share = [sum(times for s, times in found.items() if layer in s) / len(again) for layer in range(1, layers + 1)]
    others = [(subset, times) for subset, times in found.most_common() if subset != kept]
    other, times = others[0] if others else (None, 0)
    return Certainty(
        draws=len(again),
        layers=tuple(share),
        same=found[kept] / len(again),
        other=other,
        other_share=times / len(again),
    )
