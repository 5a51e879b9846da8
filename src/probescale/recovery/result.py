"""The result of a run: the metrics of every model it evaluated."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from probescale.models.shrink.word_pieces import WordPieces
from probescale.models.speed import SpeedSpread
from probescale.utils.files import Record

ORIGINAL = "original"  # name of the fine-tuned original among evaluated models


class VectorCost(BaseModel):
    """The vectors of an encoder: their numbers, and how many are made per second."""

    model_config = ConfigDict(frozen=True)

    width: int  # numbers per vector
    texts_per_second: float  # from the text to the vector, in batches, on the machine of the run

    @property
    def index_megabytes(self) -> float:
        """Of the vectors of a million texts, as they are: float32, without compression."""
        return 4.0 * self.width  # bytes of a number, for a million texts


class BeforeTraining(Record):
    """The metric of a subnetwork as it was cut, which only models with a trained head of their own have."""

    value: float  # on the dev set
    second: float | None = None  # on `task.second`


class EvaluatedModel(Record):
    """Metrics of one fine-tuned model on the dev set."""

    kept: tuple[int, ...]
    params: int
    megabytes: float | None = None  # of the weights on disk, as the model is saved; None: not known
    ratio_total: float  # of all parameters, embeddings and head included
    ratio_layers: float  # of the parameters in layers
    value: float  # the task's metric
    validation: float | None = None  # the same on a part of train, where something is decided on it
    interval: tuple[float, float]  # 95 %, over the dev examples; the training seed's effect is not included
    retention: float | None  # share of the original's value that is kept (`Metric.retention`)
    second: float | None = None  # the task's metric on `task.second`, of which nothing is learned
    before: BeforeTraining | None = None
    losses: tuple[float, ...]  # mean of every epoch of fine-tuning
    thresholds: dict[str, float] | None = None  # of labels, in probabilities; the saved model gives a label from 0.5 on
    failure: str = ""  # why it did not learn the task, by its answers to training texts; empty where it did
    pieces: WordPieces | None = None  # what words of dev became; None: the vocabulary was not trimmed
    retried: str = ""  # why and how it was trained again; empty where the first training is kept
    milliseconds: float  # of one forward pass over `selection.batch_size` texts of `selection.length` tokens
    speedup: float  # how many times as fast as the original; both are timed alternately
    spread: SpeedSpread | None = None  # of single measurements of the speed; None: not measured
    seconds: float  # of fine-tuning and evaluation
    vectors: VectorCost | None = None  # what its embeddings cost, where it gives some
    first: dict[int, float] = Field(default_factory=dict)  # the metric with so many first numbers of each embedding


class Alternative(Record):
    """A simpler model for the same task, trained on the same data: what one could use instead of the subnetwork."""

    name: str
    value: float  # the task's metric on the dev set
    interval: tuple[float, float]
    retention: float | None  # share of the original's value that is kept (`Metric.retention`)
    params: int  # weights that have to be kept, embeddings or feature weights included
    milliseconds: float  # for one text
    speedup: float  # how many times as fast as the original
    spread: SpeedSpread | None = None
    vectors: VectorCost | None = None  # what its embeddings cost, where it gives some


class RunResult(Record):
    """Metrics of the original, the subnetwork, compared strategies and simple alternatives. Saved as metrics.json.

    All metrics are of the dev set. After a failure no model has a retention.
    """

    task: str
    metric: str
    positive: str | None = None  # the label that the metric is about, where it is about one
    split: str
    examples: int  # in the dev set
    recipe: str
    strategy: str
    original: EvaluatedModel
    subnetwork: EvaluatedModel
    compared: dict[str, EvaluatedModel]
    # Of `compare`: other models, their sizes and retention in comparison with the original; or why they have no row.
    other_models: dict[str, EvaluatedModel] = Field(default_factory=dict)
    failed_models: dict[str, str] = Field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    failure: str | None = None  # why this is no success: the original or the subnetwork did not learn the task
    retention: float | None  # None where there is no share to speak of, or where training failed
    wanted: float | None = None  # the share that was asked for; None: none was
    retention_interval: tuple[float, float] | None = None  # 95 %: both models on the same resampled dev examples
    provenance: dict[str, Any] = Field(default_factory=dict)
