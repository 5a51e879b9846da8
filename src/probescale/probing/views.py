"""Pooling: which tokens of a text are kept, and how their states become one row.

Every pooling is a span of tokens: one token for cls, sep and last; all tokens for mean and max; for a word, its
tokens or the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from probescale.models.batching import Tokens, tokenize
from probescale.tasks.data import Data


@dataclass(frozen=True)
class View:
    """The rows that a pooling gives, sorted by input: the tokens of each, and how their states become one vector."""

    inputs: np.ndarray  # (rows,) index of the input
    words: np.ndarray  # (rows,) index of the word in it; 0 for whole texts
    starts: np.ndarray  # (rows,) first token
    ends: np.ndarray  # (rows,) after the last token
    reduce: str  # mean or max

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: np.ndarray) -> View:
        return View(self.inputs[rows], self.words[rows], self.starts[rows], self.ends[rows], self.reduce)

    def in_order(self, order: np.ndarray) -> View:
        """The same rows, sorted by this order of the inputs."""
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return self.take(np.argsort(rank[self.inputs], kind="stable"))

    def pooler(self, batch: np.ndarray, first_token: Tensor) -> Callable[[Tensor], np.ndarray]:
        """A function from states (batch, tokens, width) to rows (rows, width), for a view of the batch's rows only.

        With padding on the left, `first_token` (batch,) says where each input starts.
        """
        line = {int(number): i for i, number in enumerate(batch)}
        lines = torch.tensor([line[int(number)] for number in self.inputs], dtype=torch.long)
        lengths = torch.from_numpy(self.ends - self.starts).long()
        begin = torch.from_numpy(self.starts).long() + first_token[lines]
        if bool((lengths == 1).all()):
            return lambda states: states[lines, begin].float().cpu().numpy()
        within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        lines, columns = lines.repeat_interleave(lengths), begin.repeat_interleave(lengths) + within

        def pool(states: Tensor) -> np.ndarray:
            tokens = states[lines, columns].float()
            return torch.segment_reduce(tokens, self.reduce, lengths=lengths.to(tokens.device)).cpu().numpy()

        return pool


def tokenize_with_views(
    tokenizer: PreTrainedTokenizerBase,
    data: Data,
    wanted: Sequence[tuple[Data, str]],
    max_length: int,
) -> tuple[Tokens, list[View]]:
    """The tokens of the inputs, and a view for each (data, pooling), all on the same inputs."""
    spans: list[list[tuple[int, int, int, int]]] = [[] for _ in wanted]

    def visit(first: int, encoded: BatchEncoding) -> None:
        for row in range(len(encoded["input_ids"])):
            for rows, (labelled, pooling) in zip(spans, wanted, strict=True):
                rows += ((first + row, *span) for span in _list_spans(encoded, row, first + row, labelled, pooling))

    tokens = tokenize(tokenizer, data.texts, data.pairs, max_length, visit)
    views = []
    for rows, (_, pooling) in zip(spans, wanted, strict=True):
        columns = np.array(rows, np.int32).reshape(-1, 4).T
        views.append(View(*columns, reduce="max" if pooling == "max" else "mean"))
    return tokens, views


def _list_spans(
    encoded: BatchEncoding, row: int, number: int, data: Data, pooling: str
) -> Iterable[tuple[int, int, int]]:
    """(word, first token, after the last token) of every row of an input."""
    length = len(encoded["input_ids"][row])
    if data.per_word:
        return _list_word_spans(encoded, row, data.words_in(number), pooling)
    if pooling == "sep":
        position = find_separator(encoded.sequence_ids(row))
        return [(0, position, position + 1)]
    return [{"cls": (0, 0, 1), "last": (0, length - 1, length)}.get(pooling, (0, 0, length))]


def _list_word_spans(
    encoded: BatchEncoding, row: int, words: Sequence[tuple[str, bool]], pooling: str
) -> Iterable[tuple[int, int, int]]:
    """Tokens of the words that have a tag. Words beyond the length limit are left out.

    Words are joined by spaces and aligned with tokens by their characters: so a text has the same tokens as in
    pre-training, with any kind of tokenizer.
    """
    end, tokens = -1, encoded.tokens(row)
    for number, (word, labelled) in enumerate(words):
        start, end = end + 1, end + 1 + len(word)
        if not labelled:
            continue
        first, last = encoded.char_to_token(row, start), encoded.char_to_token(row, end - 1)
        if first is None or (last is None and pooling == "token_mean"):
            continue
        last = first if last is None else last
        # A token that is only the space before the word (as in T5) does not represent the word.
        if first < last and not tokens[first].strip("▁Ġ "):
            first += 1
        yield number, first, (first if pooling == "token" else last) + 1


def find_separator(sequence_ids: list[int | None]) -> int:
    """Position of the special token that ends the first text.

    >>> find_separator([None, 0, 0, None, None, 1, None])  # <s> a b </s> </s> c </s>
    3
    """
    if 0 not in sequence_ids:  # the first text has no token: take the special token before the second text
        return max(sequence_ids.index(1) - 1, 0) if 1 in sequence_ids else len(sequence_ids) - 1
    return len(sequence_ids) - sequence_ids[::-1].index(0)
