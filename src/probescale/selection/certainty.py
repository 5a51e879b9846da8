"""How certain a selection is: how often resampled held-out rows lead to the same layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from probescale.models.subsets import Subset

CLOSE = 0.95  # a subset that is chosen less often than this is within the noise of others


class Certainty(BaseModel):
    """How often resamples of the held-out rows lead to the same layers, and which others they lead to."""

    model_config = ConfigDict(frozen=True)

    draws: int
    layers: tuple[float, ...]  # how often each layer is kept, layer 1 first
    same: float  # how often exactly these layers are chosen
    other: Subset | None = None  # the subset that is chosen most often otherwise
    other_share: float = 0.0

    @property
    def close(self) -> bool:
        return self.same < CLOSE

    def sentence(self) -> str:
        """The certainty in one sentence for people."""
        how_often = f"these layers are chosen in {self.same:.0%} of {self.draws} resamples of the held-out rows"
        if not self.close or self.other is None:
            return f"Stable: {how_often}."
        other = f"layer{'s' * (len(self.other) > 1)} {', '.join(map(str, self.other))}"
        return f"Within the noise: {how_often}, {other} in {self.other_share:.0%}."


def measure_certainty(kept: Subset, layers: int, choices: Sequence[Subset]) -> Certainty | None:
    """Compare the kept layers with the choice of every resample; None where there are no resamples."""
    if not choices:
        return None
    counts, total = Counter(choices), len(choices)
    others = [(subset, count) for subset, count in counts.most_common() if subset != kept]
    other, other_count = others[0] if others else (None, 0)
    return Certainty(
        draws=total,
        layers=tuple(
            sum(count for subset, count in counts.items() if layer in subset) / total for layer in range(1, layers + 1)
        ),
        same=counts[kept] / total,
        other=other,
        other_share=other_count / total,
    )
