"""Facts about a model that a plan needs. Those of well-known models are stored, so no heavy library is loaded."""

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

DEFAULT_LENGTH = 128  # tokens
FACTS_FILE = "shape_counts.json"  # written by docs/generate.py, checked by a test


class Facts(Record):
    """Size and cost of a model at one input length."""

    length: int  # tokens, for the operations
    family: str
    part: str  # "encoder alone" where a decoder exists and is not counted
    layers_at: str  # path of the list of layers
    layer_1_stays: str  # the reason; empty where layer 1 may be dropped
    longest: int | None  # most tokens of an input; None: no limit
    parameters: Parameters
    gflops: Cost | None  # of one text; None where they cannot be counted without weights


class FactsByLength(Record):
    """The facts for any input length: operations are a + b n + c n^2 for n tokens."""

    family: str
    part: str
    layers_at: str
    layer_1_stays: str
    longest: int | None
    parameters: Parameters
    fixed: tuple[float, float, float]  # a, b, c of everything outside the layers
    layers: tuple[tuple[float, float, float], ...]  # a, b, c of each layer

    def at(self, length: int) -> Facts:
        """The facts at one length."""

        def gflops(coefficients: tuple[float, float, float]) -> float:
            a, b, c = coefficients
            return (a + b * length + c * length**2) / 1e9

        cost = Cost(fixed=gflops(self.fixed), layers=tuple(gflops(layer) for layer in self.layers))
        return Facts(**self.model_dump(exclude={"fixed", "layers"}), length=length, gflops=cost)


@cache
def _stored_facts() -> dict[str, dict[str, Any]]:
    return json.loads(resources.files("probescale.models").joinpath(FACTS_FILE).read_text(encoding="utf-8"))


def built_in_facts(name: str, length: int | None = None) -> Facts | None:
    """Facts of a built-in shape without a head, at this length (or the default); None for unknown names."""
    known = canonical_name(name)
    if known is None:
        return None
    facts = FactsByLength.model_validate(_stored_facts()[known])
    check_length(length, facts.longest)
    return facts.at(default_length(length, facts.longest))


def check_length(length: int | None, longest: int | None, *, field: str = "--length") -> None:
    """Refuse an input length above what the model accepts."""
    if length is not None and longest is not None and length > longest:
        raise UserError(
            f"{length:,} tokens are more than the model accepts", field=field, hint=f"use at most {longest:,}"
        )


def default_length(length: int | None, longest: int | None) -> int:
    """The given length, or 128 tokens, or the most that the model accepts."""
    return length or min(DEFAULT_LENGTH, longest or DEFAULT_LENGTH)
