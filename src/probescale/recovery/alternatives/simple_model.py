"""A trained alternative: features of a text or word, and a linear probe on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from probescale.probing.probes.closed_form import LinearFit
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind

Encode = Callable[[Data], Any]  # the features of every row: an array, NaN for rows without features, or a sparse matrix


@dataclass(frozen=True)
class SimpleModel:
    """Predicts with a linear probe on features that were not trained for the task."""

    name: str
    encode: Encode
    probe: LinearFit
    params: int  # numbers that have to be stored
    encode_one: Encode | None = None  # for a single input, where that takes less time

    def predict(self, data: Data, shift: np.ndarray | None = None) -> np.ndarray:
        """(inputs,) the prediction for every input, decoded by the kind of task. `shift`: added to the logits."""
        starts, logits = np.concatenate([[0], np.cumsum(data.rows_per_input)]), self.logits(data)
        return find_kind(data.kind).decode(logits if shift is None else logits + shift, starts)

    def answer(self, one: Data) -> np.ndarray:
        """The probe's output for a single input, by the shortest way: what is timed."""
        return self.probe((self.encode_one or self.encode)(one))

    def logits(self, data: Data) -> np.ndarray:
        """(rows, classes) logits; probes for two classes have only one column."""
        logits = self.probe(self.encode(data))
        if data.target == "class" and logits.shape[1] < len(data.names):
            return np.concatenate([-logits, logits], 1) / 2
        return logits
