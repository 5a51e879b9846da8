"""One label per text or pair of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from probescale.config import DataConfig
from probescale.tasks.data import Data
from probescale.tasks.kinds.kind import Kind, Rendered
from probescale.tasks.kinds.losses import CrossEntropy
from probescale.tasks.kinds.registry import task_kind
from probescale.tasks.labelled import load_examples, read_labelled


@task_kind("class")
class Classes(Kind):
    """One label per text or pair of texts."""

    head = "sentence"
    loss = CrossEntropy()
    bias_pairs = True
    pipeline_tag = "text-classification"

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_examples(data, field=field, rename=rename, names=names)

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return read_labelled(data, field=field)

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "accuracy"

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return best_labels(logits)

    def slices(self, gold: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {f"label {name}": gold == number for number, name in enumerate(names)}

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - a label's number
        return names[prediction]

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        shares: list[float] = self.mean(logits)[0].tolist()
        best = int(np.argmax(logits[0]))
        label, share = names[best], shares[best]
        fields = {"label": label, "probability": share, "probabilities": dict(zip(names, shares, strict=True))}
        return Rendered(fields, label, label, share)

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        return 'classify = pipeline("text-classification", model="model")'


def best_labels(logits: np.ndarray) -> np.ndarray:
    """(rows,) the number of the likeliest label; -1 where logits are NaN."""
    answered = ~np.isnan(logits[:, 0])
    return np.where(answered, np.where(answered[:, None], logits, 0).argmax(-1), -1)
