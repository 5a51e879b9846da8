"""Texts as a model reads them while it learns or answers, and the rows of answers that it owes for them.

A row is a sentence, or a word where words are tagged. Rows are numbered by the data alone: two models with different
tokenizers speak of the same row by the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from probescale.models.batching import Tokens
from probescale.probing.views import tokenise
from probescale.tasks.data import Data


@dataclass(frozen=True)
class Inputs(Dataset[dict[str, Any]]):
    """Tokens of every input; for words also the token at which each is answered. Words beyond the limit have none."""

    tokens: Tokens
    words: bool
    starts: np.ndarray  # (inputs + 1,) number of the first row of every input
    places: list[list[tuple[int, int]]]  # by input: (token, row); empty where a row is a sentence

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> dict[str, Any]:
        item: dict[str, Any] = {**self.tokens[number], "number": number}
        if self.words:
            item["places"] = self.places[number]
        return item

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def collate(self, tokenizer: PreTrainedTokenizerBase, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """A padded batch; `rows` is the row that each input, or each token, is answered for (-1: none)."""
        padded = tokenizer.pad(
            {name: [item[name] for item in items] for name in self.tokens.fields}, return_tensors="pt"
        )
        batch: dict[str, Tensor] = dict(padded)
        batch["number"] = torch.tensor([item["number"] for item in items])
        batch["rows"] = self._rows(batch, items) if self.words else batch["number"]
        return batch

    def _rows(self, batch: dict[str, Tensor], items: Sequence[dict[str, Any]]) -> Tensor:
        rows = torch.full(batch["input_ids"].shape, -1)
        first = batch["attention_mask"].argmax(1)  # the first real token, where padding is on the left
        for line, item in enumerate(items):
            for token, row in item["places"]:
                rows[line, first[line] + token] = row
        return rows


def build_inputs(tokenizer: PreTrainedTokenizerBase, data: Data, max_length: int) -> Inputs:
    words = data.per_word
    starts = np.concatenate([[0], np.cumsum(data.rows_per_input)]).astype(np.int64)
    data = data.fully_labelled()  # words without a tag are answered, too
    tokens, [view] = tokenise(tokenizer, data, [(data, "token" if words else "cls")], max_length)
    places: list[list[tuple[int, int]]] = [[] for _ in range(len(data))] if words else []
    if words:
        for number, word, token in zip(view.inputs, view.words, view.starts, strict=True):
            places[number].append((int(token), int(starts[number] + word)))
    return Inputs(tokens, words, starts, places)
