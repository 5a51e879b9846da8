"""Texts to padded batches of like length, for every forward pass that needs no gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from probescale.progress import waiting
from probescale.tasks.data import Examples


def encode(tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int) -> BatchEncoding:
    pairs = list(examples.pairs) if examples.pairs else None
    with waiting("tokenising"):
        return tokenizer(list(examples.texts), pairs, truncation=True, max_length=max_length)


def lengths_of(encoded: BatchEncoding) -> np.ndarray:
    """Tokens of each input, (inputs,)."""
    return np.array([len(ids) for ids in encoded["input_ids"]])


def padded_batches(
    tokenizer: PreTrainedTokenizerBase, encoded: BatchEncoding, batch_tokens: int
) -> Iterator[tuple[list[int], BatchEncoding]]:
    """(which inputs, their padded tensors). The order is by length; the caller puts results back in place."""
    for batch in batches_by_tokens(lengths_of(encoded), batch_tokens):
        fields = {key: [values[i] for i in batch] for key, values in encoded.items()}
        yield batch, tokenizer.pad(fields, return_tensors="pt")


def batches_by_tokens(lengths: Sequence[int] | np.ndarray, batch_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of like length, each at most so many tokens when padded (or a single input).

    >>> list(batches_by_tokens([2, 9, 3, 2], 9))
    [[1], [2, 0, 3]]
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
