"""One number per text or pair of texts (regression)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from probescale.config import DataConfig
from probescale.tasks.data import Data
from probescale.tasks.kinds.kind import Kind, Rendered
from probescale.tasks.kinds.losses import SquaredError
from probescale.tasks.kinds.registry import task_kind
from probescale.tasks.labelled import load_examples, read_labelled


@task_kind("number")
class Numbers(Kind):
    """One number per text or pair of texts (regression)."""

    head = "regression"
    outputs = ("number is", "numbers")
    loss = SquaredError()
    standardised = True
    pipeline_tag = "text-classification"
    named = False
    values_called = "different numbers"
    answers = ("value",)

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_examples(data, field=field, target="number")

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return read_labelled(data, field=field, target="number")

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "spearman"

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return logits[:, 0].astype(np.float64)

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        return None

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - a number
        return f"{prediction:.6g}"

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        value = float(logits[0, 0])
        return Rendered({"value": value}, value, f"{value:.4g}")

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        call = 'measure = pipeline("text-classification", model="model", function_to_apply="none")'
        return f"{call}  # score: the number"
