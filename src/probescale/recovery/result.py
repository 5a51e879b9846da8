"""The result of a run: the metrics of every model it evaluated."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from probescale.utils.files import Record

ORIGINAL = "original"  # name of the fine-tuned original among evaluated models


class EvaluatedModel(Record):
    """Metrics of one fine-tuned model on the dev set."""

    kept: tuple[int, ...]
    params: int
    ratio_total: float  # of all parameters, embeddings and head included
    ratio_layers: float  # of the parameters in layers
    value: float  # the task's metric
    interval: tuple[float, float]  # 95 %, over resampled dev examples; the training seed's effect is not included
    retention: float | None  # value divided by the original's
    losses: tuple[float, ...]  # mean of every epoch of fine-tuning
    milliseconds: float  # of one forward pass over `selection.batch_size` texts of `selection.length` tokens
    speedup: float  # how many times as fast as the original; both are timed alternately
    seconds: float  # of fine-tuning and evaluation


class RunResult(Record):
    """Metrics of the original, the subnetwork and the compared strategies on the dev set. Saved as metrics.json."""

    task: str
    metric: str
    split: str
    examples: int  # in the dev set
    recipe: str
    strategy: str
    original: EvaluatedModel
    subnetwork: EvaluatedModel
    compared: dict[str, EvaluatedModel]
    retention: float | None
    provenance: dict[str, Any] = Field(default_factory=dict)
