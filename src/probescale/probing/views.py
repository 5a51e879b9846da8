"""Which states of a text are kept: spans of its tokens, each reduced to one row.

Every pooling is a span: cls, sep and last are one token, mean and max all tokens, a word its pieces (or the first).
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
    """Rows to keep of a pass, sorted by input: where each comes from, and how its tokens become one vector."""

    inputs: np.ndarray  # (rows,) number of the input
    words: np.ndarray  # (rows,) number of the word in it; 0 for sentences
    starts: np.ndarray  # (rows,) first token
    ends: np.ndarray  # (rows,) behind the last token
    reduce: str  # mean or max

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: np.ndarray) -> View:
        return View(self.inputs[rows], self.words[rows], self.starts[rows], self.ends[rows], self.reduce)

    def in_order(self, order: np.ndarray) -> View:
        """Rows sorted by the given order of the inputs."""
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return self.take(np.argsort(rank[self.inputs], kind="stable"))

    def pooler(self, batch: np.ndarray, first_token: Tensor) -> Callable[[Tensor], np.ndarray]:
        """From states (batch, tokens, width) to rows (rows, width), for a view that holds only the batch's rows.

        Where padding is on the left, tokens count from the first real one.
        """
        place = {int(number): i for i, number in enumerate(batch)}
        owner = torch.tensor([place[int(number)] for number in self.inputs], dtype=torch.long)
        lengths = torch.from_numpy(self.ends - self.starts).long()
        begin = torch.from_numpy(self.starts).long() + first_token[owner]
        if bool((lengths == 1).all()):
            return lambda states: states[owner, begin].float().cpu().numpy()
        within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        owner, column = owner.repeat_interleave(lengths), begin.repeat_interleave(lengths) + within

        def pool(states: Tensor) -> np.ndarray:
            tokens = states[owner, column].float()
            return torch.segment_reduce(tokens, self.reduce, lengths=lengths.to(tokens.device)).cpu().numpy()

        return pool


def tokenise(
    tokenizer: PreTrainedTokenizerBase,
    data: Data,
    wanted: Sequence[tuple[Data, str]],
    max_length: int,
) -> tuple[Tokens, list[View]]:
    """The inputs' tokens, and a view for every (data, pooling) on the same inputs."""
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in wanted]

    def visit(first: int, encoded: BatchEncoding) -> None:
        for row in range(len(encoded["input_ids"])):
            for rows, (whose, pooling) in zip(found, wanted, strict=True):
                rows += ((first + row, *span) for span in _spans(encoded, row, first + row, whose, pooling))

    tokens = tokenize(tokenizer, data.texts, data.pairs, max_length, visit)
    views = []
    for rows, (_, pooling) in zip(found, wanted, strict=True):
        columns = np.array(rows, np.int32).reshape(-1, 4).T
        views.append(View(*columns, reduce="max" if pooling == "max" else "mean"))
    return tokens, views


def _spans(encoded: BatchEncoding, row: int, number: int, data: Data, pooling: str) -> Iterable[tuple[int, int, int]]:
    """(word, first token, behind the last token) of every row that an input gives."""
    length = len(encoded["input_ids"][row])
    if data.per_word:
        return _words(encoded, row, data.words_in(number), pooling)
    if pooling == "sep":
        place = separator(encoded.sequence_ids(row))
        return [(0, place, place + 1)]
    return [{"cls": (0, 0, 1), "last": (0, length - 1, length)}.get(pooling, (0, 0, length))]


def _words(
    encoded: BatchEncoding, row: int, words: Sequence[tuple[str, bool]], pooling: str
) -> Iterable[tuple[int, int, int]]:
    """Pieces of the words that have a tag. Words beyond the length limit are left out.

    Words are joined by blanks and found again by their characters: the pieces are then the ones the model was trained
    on, whatever kind of tokenizer it has.
    """
    end, pieces = -1, encoded.tokens(row)
    for number, (word, labelled) in enumerate(words):
        start, end = end + 1, end + 1 + len(word)
        if not labelled:
            continue
        first, last = encoded.char_to_token(row, start), encoded.char_to_token(row, end - 1)
        if first is None or (last is None and pooling == "token_mean"):
            continue
        last = first if last is None else last
        # A piece that is only the blank before the word (T5 has it) says nothing of the word.
        if first < last and not pieces[first].strip("▁Ġ "):
            first += 1
        yield number, first, (first if pooling == "token" else last) + 1


def separator(sequence_ids: list[int | None]) -> int:
    """Position of the special token that ends the first text.

    >>> separator([None, 0, 0, None, None, 1, None])  # <s> a b </s> </s> c </s>
    3
    """
    if 0 not in sequence_ids:  # a text without any token: the special token before the second text
        return max(sequence_ids.index(1) - 1, 0) if 1 in sequence_ids else len(sequence_ids) - 1
    return len(sequence_ids) - sequence_ids[::-1].index(0)
