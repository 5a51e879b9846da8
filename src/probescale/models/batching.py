"""Tokenize texts and batch them by length, for every forward pass without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from probescale.errors import UserError
from probescale.utils.progress import spinner

CHUNK = 1024  # texts tokenized at a time: the tokenizer's own records take far more memory than the ids


@dataclass(frozen=True)
class Tokens:
    """Token ids, masks and so on of many inputs, each field in one flat array."""

    fields: dict[str, np.ndarray]
    starts: np.ndarray  # (inputs + 1,): where each input begins

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        span = slice(self.starts[row], self.starts[row + 1])
        return {name: values[span].tolist() for name, values in self.fields.items()}

    def spread(self, numbers: np.ndarray, inputs: int) -> Tokens:
        """The same as a part of more inputs: these have the ascending `numbers`, and the others have no tokens."""
        lengths = np.zeros(inputs, np.int64)
        lengths[numbers] = self.lengths
        return Tokens(self.fields, np.concatenate([[0], np.cumsum(lengths)]))

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def by_length(self) -> np.ndarray:
        """The order of inputs, longest first: one that does not fit into memory shows at once."""
        return np.lexsort((np.arange(len(self)), -self.lengths))


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    visit: Callable[[int, BatchEncoding], None] | None = None,
) -> Tokens:
    """Tokenize texts or pairs; `visit(index of the first text, encodings)` sees each chunk with its alignment."""
    fewest = tokenizer.num_special_tokens_to_add(pair=pairs is not None) + 1
    if max_length < fewest:  # the tokenizer would not cut at all
        raise UserError(
            f"{max_length} tokens leave none for a text", field="max_length", hint=f"give at least {fewest}"
        )
    parts: dict[str, list[np.ndarray]] = {}
    lengths: list[int] = []
    with spinner("tokenizing"):
        for first in range(0, len(texts), CHUNK):
            chunk = slice(first, first + CHUNK)
            encoded = tokenizer(
                list(texts[chunk]), list(pairs[chunk]) if pairs else None, truncation=True, max_length=max_length
            )
            if visit:
                visit(first, encoded)
            lengths += [len(ids) for ids in encoded["input_ids"]]
            for name, values in encoded.items():
                parts.setdefault(name, []).append(np.concatenate([np.array(row, np.int32) for row in values]))
    fields = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return Tokens(fields, np.concatenate([[0], np.cumsum(lengths)]))


def padded_batches(
    tokenizer: PreTrainedTokenizerBase, tokens: Tokens, batch_tokens: int, first: int = 0
) -> Iterator[tuple[np.ndarray, BatchEncoding]]:
    """Batches as (indices of the inputs, padded tensors), in the order `by_length` from position `first`."""
    order = tokens.by_length[first:]
    for batch in batches_by_tokens(tokens.lengths[order], batch_tokens):
        rows = [tokens[row] for row in order[batch]]
        fields = {name: [row[name] for row in rows] for name in tokens.fields}
        yield order[batch], tokenizer.pad(fields, return_tensors="pt")


def batches_by_tokens(lengths: Sequence[int] | np.ndarray, batch_tokens: int) -> Iterator[slice]:
    """Slices that split inputs, sorted by falling length, into batches of at most so many tokens with padding.

    A longer input is a batch of its own.


    >>> list(batches_by_tokens([9, 3, 2, 2], 9))
    [slice(0, 1, None), slice(1, 4, None)]
    """
    first = 0
    while first < len(lengths):
        size = max(1, batch_tokens // max(int(lengths[first]), 1))
        yield slice(first, min(first + size, len(lengths)))
        first += size
