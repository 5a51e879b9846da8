"""What a search for the smallest model tried. Saved as smallest.json."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from probescale.selection.scaling import Law
from probescale.utils.files import Record


class SearchStep(BaseModel):
    """One training: what was expected of it, and what came out."""

    model_config = ConfigDict(frozen=True)

    kept: tuple[int, ...]
    params: int
    expected: float | None  # None for the original, which is measured first
    value: float
    retention: float | None
    enough: bool


class SmallestSearch(Record):
    keep: float  # share of the original's metric that had to be kept
    wanted: float  # the metric that this means
    trials: tuple[SearchStep, ...]  # in the order in which they were trained
    answer: tuple[int, ...]  # the layers of the smallest model that was measured to keep enough
    bracketed: bool  # the next smaller one was measured, and keeps too little
    law: Law | None = None  # probe accuracy against parameters of the candidates: what was expected before training
    held_out_error: dict[str, float] = Field(default_factory=dict)  # of that law, and of fits that ignore it
    provenance: dict[str, Any] = Field(default_factory=dict)
