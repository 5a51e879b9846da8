"""The result of a search for the smallest model: every size that it trained."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from probescale.utils.files import Record


class SearchStep(BaseModel):
    """One model that was trained: the metric expected of it, and what it reached on the held-out part of train."""

    model_config = ConfigDict(frozen=True)

    budget: str  # such as 5x; 1x is the original
    kept: tuple[int, ...]
    params: int
    expected: float | None  # None for the original, which is trained first
    value: float
    retention: float | None
    enough: bool


class SmallestSearch(Record):
    """The smallest model that keeps enough, and every training that led to it. Saved as smallest.json."""

    metric: str
    keep: float  # the required share of the original's metric
    wanted: float  # the metric that this share amounts to
    trials: tuple[SearchStep, ...]  # in the order of training
    answer: str  # the budget of the smallest model that keeps enough
    bracketed: bool  # the next smaller size was trained as well, and keeps too little
    examples: int  # of train, held out to decide on
    provenance: dict[str, Any] = Field(default_factory=dict)
