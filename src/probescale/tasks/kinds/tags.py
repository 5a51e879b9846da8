"""One tag per word: entities, parts of speech."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.data import Data, tuple_rows
from probescale.tasks.kinds.classes import best_labels
from probescale.tasks.kinds.kind import Kind, Rendered
from probescale.tasks.kinds.losses import CrossEntropy
from probescale.tasks.kinds.registry import task_kind
from probescale.tasks.labelled import load_tagged, read_tagged
from probescale.tasks.spans import is_spans


@task_kind("tags")
class Tags(Kind):
    """One tag per word: entities, parts of speech."""

    head = "token"
    unit = "word"
    loss = CrossEntropy()
    pipeline_tag = "token-classification"
    rows_called = "sentences"
    values_called = "tags"
    answers = ("tags",)

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_tagged(data, field=field, rename=rename, names=names)

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return read_tagged(data, field=field)

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "entity_f1" if is_spans(names) else "tag_accuracy"

    def choose_metric(self, name: str | None, names: tuple[str, ...]) -> str:
        if name == "entity_f1" and not is_spans(names):
            raise UserError(
                f"entity_f1 needs tags that mark spans, such as B-PER, I-PER and O; these are {', '.join(names[:10])}",
                field="task.metric",
                hint="use tag_accuracy",
            )
        return super().choose_metric(name, names)

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """A tuple of tag numbers per sentence; -1 for a word beyond the length limit."""
        best = best_labels(logits)
        return tuple_rows([tuple(best[first:end].tolist()) for first, end in pairwise(starts)])

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        """A sentence is right when all of its tags are; a word without a tag cannot be wrong."""
        sentences = zip(gold, predicted, strict=True)
        return np.array([all(a in (-1, b) for a, b in zip(one, other, strict=True)) for one, other in sentences])

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - a tuple of tag numbers
        return " ".join(names[tag] if tag >= 0 else "-" for tag in prediction)

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        tags = [names[tag] if tag >= 0 else "" for tag in best_labels(logits)]
        tagged = tuple(zip(text.split(), tags, strict=True))
        return Rendered({"tags": tagged}, " ".join(tags), " ".join(f"{word}/{tag}" for word, tag in tagged))

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        grouped = ', aggregation_strategy="first"' if is_spans(names) else ""
        return f'tag = pipeline("token-classification", model="model"{grouped})'

    @property
    def usage_note(self) -> str:
        return "A word's tag is the model's answer at its first token; its other tokens were not trained to answer."
