"""Tokenized inputs of a model, and the rows that it predicts for them.

A row is one prediction: of a text, or of a word if the task tags words. Rows are numbered by the data alone, so that
models with different tokenizers share the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from probescale.models.batching import Tokens
from probescale.models.loading import LoadedModel
from probescale.models.packing import Blocks, pack
from probescale.probing.views import tokenize_with_views
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents

BATCH_TOKENS = 2048  # of a forward pass without gradients, padding included
MOST_LOGITS = 2**26  # numbers in one batch of logits, where every token has as many as the vocabulary


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

    def labels(self, known: np.ndarray) -> np.ndarray:
        """(rows, ...) the labels of all rows, NaN where there are none. `known`: those of the first rows."""
        labels = np.full((self.rows, *known.shape[1:]), np.nan, np.float32)  # unlabelled inputs come last
        labels[: len(known)] = known
        return labels

    def count_columns(self, loaded: LoadedModel) -> int:
        """How many numbers `read` gives for every row."""
        return loaded.outputs

    def batch_tokens(self, vocabulary: int) -> int:
        """Tokens of a batch of a forward pass."""
        return BATCH_TOKENS

    def read(self, loaded: LoadedModel, output: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(rows, columns) what is kept of the output for a batch, and the numbers of these rows."""
        logits, rows = select_rows(loaded, output, batch)
        return self.summarise(logits, rows), rows

    def summarise(self, logits: Tensor, rows: Tensor) -> Tensor:
        """(rows, columns) what is kept of the logits of these rows."""
        return logits

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


@dataclass(frozen=True)
class TextInputs(Inputs):
    """Blocks of running text. Of every row are kept: its nats, whether the likeliest token is right, its bytes."""

    blocks: Blocks

    @classmethod
    def from_blocks(cls, blocks: Blocks) -> TextInputs:
        return cls(blocks.tokens, words=True, starts=blocks.starts, places=[], blocks=blocks)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self.tokens[number], "number": number}

    @cached_property
    def block_ends(self) -> np.ndarray:
        """(blocks,) how many rows there are up to the end of every block."""
        return np.cumsum([(self.blocks.rows_of(block) >= 0).sum() for block in range(len(self))])

    def labels(self, known: np.ndarray) -> np.ndarray:
        return self.blocks.targets.astype(np.float32)

    def count_columns(self, loaded: LoadedModel) -> int:
        return 3

    def batch_tokens(self, vocabulary: int) -> int:
        return max(min(BATCH_TOKENS, MOST_LOGITS // vocabulary), 1)

    def summarise(self, logits: Tensor, rows: Tensor) -> Tensor:
        numbers = rows.cpu().numpy()
        targets = torch.from_numpy(self.blocks.targets[numbers]).long().to(logits.device)
        nats = cross_entropy(logits.float(), targets, reduction="none")
        sizes = torch.from_numpy(self.blocks.row_bytes[numbers]).float().to(logits.device)
        return torch.stack([nats, (logits.argmax(-1) == targets).float(), sizes], 1)

    def _rows(self, batch: dict[str, Tensor], items: Sequence[dict[str, Any]]) -> Tensor:
        rows = torch.full(batch["input_ids"].shape, -1)
        for line, item in enumerate(items):
            own = self.blocks.rows_of(item["number"])
            rows[line, : len(own)] = torch.from_numpy(own)  # padding is on the right
        return rows


def select_model_fields(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a batch that the model reads, without the numbers of inputs and rows."""
    return {name: tensor for name, tensor in batch.items() if name not in ("rows", "number")}


def build_inputs(
    tokenizer: PreTrainedTokenizerBase, data: Data, max_length: int, only: Sequence[int] | None = None
) -> Inputs:
    """Tokenize data and number its rows. `only`: numbers of the inputs that are needed; the others have no tokens."""
    if isinstance(data, Documents):
        return TextInputs.from_blocks(pack(tokenizer, data, max_length))
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


def forward(model: torch.nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """A stock model's logits for a batch, or without a head its states; and the batch on the model's device."""
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    return model(**select_model_fields(batch))[0], batch


def select_rows(loaded: LoadedModel, output: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(rows, classes) logits or (rows, width) embeddings, and the numbers of these rows, from what `forward` gives."""
    rows = batch["rows"]
    if loaded.pooling:
        return loaded.pooling(output, batch["attention_mask"]), rows
    if rows.ndim == 2:  # one row per token
        if (rows >= 0).all():  # without copying the logits
            return output.flatten(0, 1), rows.flatten()
        return output[rows >= 0], rows[rows >= 0]
    return loaded.family.sentence_logits(output, batch["attention_mask"]), rows
