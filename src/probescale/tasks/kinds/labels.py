"""Any number of labels per text or pair of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.data import Data, tuple_rows
from probescale.tasks.kinds.kind import FEWEST, Kind, Rendered
from probescale.tasks.kinds.losses import BinaryCrossEntropy
from probescale.tasks.kinds.registry import task_kind
from probescale.tasks.labelled import load_examples, read_labelled


@task_kind("labels")
class Labels(Kind):
    """Any number of labels per text or pair of texts.

    A prediction is a tuple with a number for every label, positive where the text has it: a logit, or 0 and 1.
    """

    head = "sentence"
    problem_type = "multi_label_classification"
    loss = BinaryCrossEntropy()
    thresholds = True
    bias_pairs = True
    pipeline_tag = "text-classification"
    values_called = "labels"
    answers = ("labels", "probabilities")

    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        return load_examples(data, field=field, rename=rename, names=names, target="multi")

    def check_rows(self, data: DataConfig, *, field: str) -> object:
        return read_labelled(data, field=field, target="multi")

    def refuse_too_few(self, train: Data) -> None:
        if len(train) < FEWEST:
            raise UserError(
                f"only {len(train)} usable training rows remain", field="task.train", hint=f"give at least {FEWEST}"
            )

    def default_metric(self, names: tuple[str, ...]) -> str:
        return "micro_f1"

    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return tuple_rows([tuple(row) for row in logits.astype(float).round(4).tolist()])

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        """A text is right when exactly its labels are predicted."""
        return (_as_table(gold) == _as_table(predicted)).all(1)

    def slices(self, gold: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        table = _as_table(gold)
        by_label = {f"label {name}": table[:, number] for number, name in enumerate(names)}
        count = table.sum(1)
        return {**by_label, "without any label": count == 0, "with several labels": count > 1}

    def compare(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        changed = ((one > 0.5) != (other > 0.5)).any(1)
        return changed, np.abs(one - other).mean(1)

    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - a tuple of numbers
        return "|".join(name for name, value in zip(names, prediction, strict=True) if value > 0)

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        shares: list[float] = self.mean(logits)[0].tolist()
        labels = [name for name, value in zip(names, logits[0].tolist(), strict=True) if value > 0]
        joined = "|".join(labels)
        return Rendered({"labels": labels, "probabilities": dict(zip(names, shares, strict=True))}, joined, joined)

    def pipeline_call(self, names: tuple[str, ...]) -> str:
        return 'classify = pipeline("text-classification", model="model", top_k=None)  # every label with its score'

    @property
    def usage_note(self) -> str:
        return "A text has the labels whose score is above 0.5: the thresholds are in the model's output layer."


def _as_table(predictions: np.ndarray) -> np.ndarray:
    """(inputs, labels) which labels each prediction has."""
    return np.array(predictions.tolist()).reshape(len(predictions), -1) > 0
