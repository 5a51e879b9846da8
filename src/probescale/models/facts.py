"""What a plan needs to know of a model: light, so that well-known models are answered without loading any library."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from probescale.errors import UserError
from probescale.models.cost import Cost
from probescale.models.parameters import Parameters
from probescale.models.shapes import canonical_name
from probescale.utils.files import Record

USUAL = 128
FACTS_FILE = "shape_counts.json"  # made by docs/generate.py on the meta device, and checked by a test


class Facts(Record):
    length: int  # tokens, for the operations
    family: str
    part: str  # "encoder alone" where there is also a decoder that is left out
    layers_at: str
    layer_1_stays: str  # why; empty where it need not
    longest: int | None  # tokens that it can take; None: any number
    parameters: Parameters
    gflops: Cost | None  # of one text; None where they cannot be counted without values


class FactsByLength(Record):
    """The facts of a well-known model for any length: operations are a + b n + c n^2 for n tokens."""

    family: str
    part: str
    layers_at: str
    layer_1_stays: str
    longest: int | None
    parameters: Parameters
    fixed: tuple[float, float, float]
    layers: tuple[tuple[float, float, float], ...]

    def at(self, length: int) -> Facts:
        def gflops(of: tuple[float, float, float]) -> float:
            return (of[0] + of[1] * length + of[2] * length**2) / 1e9

        cost = Cost(fixed=gflops(self.fixed), layers=tuple(gflops(layer) for layer in self.layers))
        return Facts(**self.model_dump(exclude={"fixed", "layers"}), length=length, gflops=cost)


@cache
def _counts() -> dict[str, dict[str, Any]]:
    return json.loads(resources.files("probescale.models").joinpath(FACTS_FILE).read_text(encoding="utf-8"))


def built_in_facts(name: str, length: int | None = None) -> Facts | None:
    """Of a built-in shape without a head, for texts of this length (or the usual one); None for other names."""
    known = canonical_name(name)
    if known is None:
        return None
    counts = FactsByLength.model_validate(_counts()[known])
    check_length(length, counts.longest)
    return counts.at(default_length(length, counts.longest))


def check_length(length: int | None, longest: int | None, *, field: str = "--length") -> None:
    if length is not None and longest is not None and length > longest:
        raise UserError(
            f"{length:,} tokens are more than the model can take", field=field, hint=f"use at most {longest:,}"
        )


def default_length(length: int | None, longest: int | None) -> int:
    """As given, else 128 or what the model can take."""
    return length or min(USUAL, longest or USUAL)
