"""Tokenized inputs of a model, and the rows that it predicts for them.

A row is one prediction: of a text, or of a word if the task tags words. Rows are numbered by the data alone, so that
models with different tokenizers share the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from probescale.models.batching import Tokens
from probescale.probing.views import tokenize_with_views
from probescale.tasks.data import Data


@dataclass(frozen=True)
class Inputs(Dataset[dict[str, Any]]):
    """Tokens of every input, and the token at which each word is predicted; words beyond the length limit have none."""

    tokens: Tokens
    words: bool  # rows are words, not texts
    starts: np.ndarray  # (inputs + 1,) number of the first row of every input
    places: list[list[tuple[int, int]]]  # per input: (token, row) of each word; empty if rows are texts

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> dict[str, Any]:
        item: dict[str, Any] = {**self.tokens[number], "number": number}
        if self.words:
            item["places"] = self.places[number]
        return item

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def collate(self, tokenizer: PreTrainedTokenizerBase, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """A padded batch; its `rows` are the row numbers of inputs, or of tokens (-1: no row)."""
        padded = tokenizer.pad(
            {name: [item[name] for item in items] for name in self.tokens.fields}, return_tensors="pt"
        )
        batch: dict[str, Tensor] = dict(padded)
        batch["number"] = torch.tensor([item["number"] for item in items])
        batch["rows"] = self._rows(batch, items) if self.words else batch["number"]
        return batch

    def _rows(self, batch: dict[str, Tensor], items: Sequence[dict[str, Any]]) -> Tensor:
        rows = torch.full(batch["input_ids"].shape, -1)
        first = batch["attention_mask"].argmax(1)  # the first token after padding on the left
        for line, item in enumerate(items):
            for token, row in item["places"]:
                rows[line, first[line] + token] = row
        return rows


def select_model_fields(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a batch that the model reads, without the numbers of inputs and rows."""
    return {name: tensor for name, tensor in batch.items() if name not in ("rows", "number")}


def build_inputs(
    tokenizer: PreTrainedTokenizerBase, data: Data, max_length: int, only: Sequence[int] | None = None
) -> Inputs:
    """Tokenize data and number its rows. `only`: numbers of the inputs that are needed; the others have no tokens."""
    words = data.per_word
    starts = np.concatenate([[0], np.cumsum(data.rows_per_input)]).astype(np.int64)
    numbers = np.arange(len(data)) if only is None else np.unique(only)
    data = data if only is None else data.take(numbers.tolist())
    data = data.fully_labelled()  # words without a tag are predicted as well
    tokens, [view] = tokenize_with_views(tokenizer, data, [(data, "token" if words else "cls")], max_length)
    places: list[list[tuple[int, int]]] = [[] for _ in range(len(starts) - 1)] if words else []
    if words:
        for number, word, token in zip(numbers[view.inputs].tolist(), view.words, view.starts, strict=True):
            places[number].append((int(token), int(starts[number] + word)))
    return Inputs(tokens.spread(numbers, len(starts) - 1), words, starts, places)
