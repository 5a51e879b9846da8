"""The result of a search for the smallest model: every subnetwork it trained."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from probescale.selection.scaling import ScalingLaw
from probescale.utils.files import Record


class SearchStep(BaseModel):
    """One subnetwork that was trained: the metric expected of it, and the metric it reached."""

    model_config = ConfigDict(frozen=True)

    kept: tuple[int, ...]
    params: int
    expected: float | None  # None for the original, which is trained first
    value: float
    retention: float | None
    enough: bool


class SmallestSearch(Record):
    """The smallest model that keeps enough, and every training that led to it. Saved as smallest.json."""

    keep: float  # the required share of the original's metric
    wanted: float  # the metric that this share amounts to
    trials: tuple[SearchStep, ...]  # in the order of training
    answer: tuple[int, ...]  # the layers of the smallest model that keeps enough
    bracketed: bool  # the next smaller candidate was trained as well, and keeps too little
    law: ScalingLaw | None = None  # of the candidates' probe accuracy over parameters: what was expected
    held_out_error: dict[str, float] = Field(default_factory=dict)  # of that law and of simpler fits
    provenance: dict[str, Any] = Field(default_factory=dict)
