"""Running text and conversations that a generative model goes on with, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from probescale.config import DataConfig, RunConfig, TaskConfig
from probescale.errors import UserError
from probescale.tasks.data import Data, tuple_rows
from probescale.tasks.documents import load_documents
from probescale.tasks.kinds.kind import Kind
from probescale.tasks.kinds.losses import NextToken
from probescale.tasks.kinds.registry import task_kind

FEWEST_DOCUMENTS = 2  # one to learn from, one to evaluate on


@task_kind("text")
class Text(Kind):
    """The next token: running text, or the answers of conversations."""

    head = "lm"
    unit = "token"
    own_head = True
    alternatives = False
    outputs = ("next token is", "logits")
    loss = NextToken()
    pipeline_tag = "text-generation"
    labelled = False
    named = False
    rows_called = "documents"
    values_called = "tokens"
    answers = ("continuation",)
    unfit_strategies = ("tried", "stitched", "stitched_search", "exhaustive")  # they probe or train with labels
    strategy_hint = "use drop_loss, block_influence, angular or contiguous"
    defaults: ClassVar[Mapping[str, Any]] = {
        "selection.strategy": "drop_loss",
        "relevance.metric": "information",
        "recovery.temperature": 1.0,
        "model.max_length": 256,
        "shrink.vocabulary": "all",
        "shrink.rank": "full",
        "shrink.units": "all",
    }

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_documents(data, field=field)

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return load_documents(data, field=field)

    def faults(self, task: TaskConfig) -> Iterator[UserError]:
        yield from super().faults(task)
        if task.unlabelled is not None:
            yield UserError(
                "texts need no labels: there is nothing to label", field="task.unlabelled", hint="add them to train"
            )

    def run_faults(self, config: RunConfig) -> Iterator[UserError]:
        yield from super().run_faults(config)
        if config.selection.ladder:
            yield UserError(
                "a run makes one generative model yet", field="selection.ladder", hint="give selection.budget instead"
            )
        yield from self._shrink_faults(config)
        recovery = config.recovery
        if recovery.temperature != 1:
            yield UserError(
                "the teacher's likeliest tokens are kept, which tell nothing of other temperatures than 1",
                field="recovery.temperature",
                hint="leave it out",
            )
        for name in ("states", "healing"):
            if getattr(recovery, name):
                yield UserError("is for texts with labels", field=f"recovery.{name}", hint="leave it out")

    def _shrink_faults(self, config: RunConfig) -> Iterator[UserError]:
        """Parts that stay as they are, and a metric that a trimmed vocabulary would change by itself."""
        shrink = config.shrink
        if shrink.vocabulary == "auto":
            yield UserError(
                "it takes labels to weigh tokens against layers, and texts have none",
                field="shrink.vocabulary",
                hint="set task (the tokens of the texts), a number of tokens, or all",
            )
        for name, whole in (("rank", "full"), ("units", "all")):
            if getattr(shrink, name) != whole:
                yield UserError(
                    "of a generative model, layers and tokens are dropped, and nothing else yet",
                    field=f"shrink.{name}",
                    hint=f"set {whole}",
                )
        if shrink.vocabulary != "all" and config.task.metric == "perplexity":
            yield UserError(
                "perplexity is counted per token, and a trimmed vocabulary makes other tokens of the same text",
                field="task.metric",
                hint="use bits_per_byte, or shrink.vocabulary: all",
            )

    def refuse_too_few(self, train: Data) -> None:
        if len(train) < FEWEST_DOCUMENTS:
            raise UserError(
                f"train holds {len(train)} {'document' if len(train) == 1 else 'documents'}",
                field="task.train",
                hint="give more text: one part is learned, another evaluated",
            )

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "bits_per_byte"

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Of every document: nats, tokens and bytes, of what was predicted.

        `logits`: of every token its nats, whether the likeliest token was right, and its share of the bytes.
        """
        answered = ~np.isnan(logits[:, 0])
        known = np.stack([logits[:, 0], np.ones(len(logits)), logits[:, 2]], 1)
        known[~answered] = 0
        sums = np.concatenate([np.zeros((1, 3)), np.cumsum(known, 0, dtype=np.float64)])
        return tuple_rows([tuple((sums[end] - sums[first]).tolist()) for first, end in pairwise(starts)])

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        return None

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - nats, tokens, bytes
        return f"{_bits_per_byte(prediction):.4f}"

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        return 'write = pipeline("text-generation", model="model")'


def _bits_per_byte(prediction: tuple[float, float, float]) -> float:
    nats, _, size = prediction
    return nats / np.log(2) / max(size, 1e-9)
