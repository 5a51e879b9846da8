"""Documents as blocks of tokens for a generative model: every token is predicted once.

Texts follow each other in one stream, which is cut into blocks of equal length. A conversation is a block of its own,
in the model's chat template, and only its answers are predicted. A row is one token that is predicted; rows are
numbered in the order of the documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from probescale.errors import UserError, first_line
from probescale.models.batching import CHUNK, Tokens
from probescale.tasks.documents import ANSWERS, Chat, Documents
from probescale.utils.progress import spinner

NO_ROW = -1


@dataclass(frozen=True)
class Blocks:
    """Blocks of tokens, and which token each of their tokens predicts."""

    tokens: Tokens
    rows: np.ndarray  # (tokens,) number of the row that a token predicts; NO_ROW: none
    targets: np.ndarray  # (rows,) id of the token that is to be predicted
    starts: np.ndarray  # (documents + 1,) number of the first row of every document
    row_bytes: np.ndarray  # (rows,) bytes of the text that a row stands for: all rows of a document have the same

    def rows_of(self, block: int) -> np.ndarray:
        """(tokens of the block,) the rows that its tokens predict."""
        return self.rows[self.tokens.starts[block] : self.tokens.starts[block + 1]]


def pack(tokenizer: PreTrainedTokenizerBase, documents: Documents, length: int) -> Blocks:
    """All documents in blocks of at most `length` tokens."""
    if documents.chats is None:
        inputs, rows, targets, counts = _pack_texts(tokenizer, documents, length)
        whole = counts
    else:
        inputs, rows, targets, counts, whole = _lay_out_chats(tokenizer, documents.chats, length)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    sizes = np.array([len(text.encode()) for text in documents.learned], float)
    ids = np.concatenate(inputs).astype(np.int32)
    tokens = Tokens(
        {"input_ids": ids, "attention_mask": np.ones_like(ids)},
        np.concatenate([[0], np.cumsum([len(block) for block in inputs])]),
    )
    row_bytes = np.repeat(sizes / np.maximum(whole, 1), counts)
    return Blocks(tokens, np.concatenate(rows), targets, starts, row_bytes)


Packed = tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]  # inputs, rows, targets, rows per document


def _pack_texts(tokenizer: PreTrainedTokenizerBase, documents: Documents, length: int) -> Packed:
    """One stream of all texts, in blocks.

    What the tokenizer puts in front of a text (Gemma's <bos>) begins every block. Whole texts end with the model's end
    token; passages of a longer text follow each other as they do in it.
    """
    prefix, end = find_prefix(tokenizer), tokenizer.eos_token_id
    ends = [end] if documents.whole and isinstance(end, int) else []
    encoded = [np.array([*ids, *ends], np.int32) for ids in _encode(tokenizer, documents.texts)]
    stream = np.concatenate(encoded)
    counts = np.array([len(ids) for ids in encoded])
    before = 0
    if not prefix:  # nothing stands before the very first token, so nothing predicts it
        counts[np.flatnonzero(counts)[0]] -= 1
        before = 1
    size = length - max(len(prefix) - 1, 0)  # rows per block
    targets = stream[before:]
    numbers = np.arange(len(targets))
    inputs, rows = [], []
    for first in range(0, len(targets), size):
        here = numbers[first : first + size]
        own = stream[here] if before else stream[here[:-1]]
        inputs.append(np.concatenate([prefix, own]) if prefix else own)
        rows.append(np.concatenate([np.full(max(len(prefix) - 1, 0), NO_ROW), here]))
    return inputs, rows, targets, counts


def find_prefix(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that a tokenizer puts in front of every text."""
    plain, whole = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    whole = cast("list[int]", whole)
    return whole[: whole.index(plain[0])] if plain and plain[0] in whole else []


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[list[int]]:
    with spinner("tokenizing"):
        for first in range(0, len(texts), CHUNK):
            chunk = list(texts[first : first + CHUNK])
            yield from tokenizer(chunk, add_special_tokens=False, verbose=False)["input_ids"]


def _lay_out_chats(
    tokenizer: PreTrainedTokenizerBase, chats: Sequence[Chat], length: int
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """One block per conversation, which is cut at the length; the last: rows that it would have as a whole."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            "the data are conversations, and the model's tokenizer has no chat template",
            field="task.train",
            hint="give a model with one, or texts instead of conversations",
        )
    inputs, rows, targets, counts, whole = [], [], list[int](), [], []
    with spinner("tokenizing"):
        for number, chat in enumerate(chats, 1):
            ids, spans = render_chat(tokenizer, chat, number)
            answers = [place for first, end in spans for place in range(max(first, 1), end)]
            predicted = [place for place in answers if place <= length]
            own = np.full(len(ids), NO_ROW)
            own[[place - 1 for place in predicted]] = len(targets) + np.arange(len(predicted))
            inputs.append(np.array(ids[:length], np.int32))
            rows.append(own[:length])
            targets += [ids[place] for place in predicted]
            counts.append(len(predicted))
            whole.append(len(answers))
    return inputs, rows, np.array(targets, np.int32), np.array(counts), np.array(whole)


def render_chat(
    tokenizer: PreTrainedTokenizerBase, chat: Chat, number: int = 1
) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a conversation in the chat template, and where the assistant's answers are (first, end)."""
    messages = [{"role": role, "content": content} for role, content in chat]
    try:
        ids = apply_template(tokenizer, messages)
        spans = []
        for place, message in enumerate(messages):
            if message["role"] == ANSWERS:
                asked = apply_template(tokenizer, messages[:place], add_generation_prompt=True) if place else []
                spans.append(
                    (_count_common(asked, ids), _count_common(apply_template(tokenizer, messages[: place + 1]), ids))
                )
    except Exception as error:  # a template raises what it likes: for roles in another order, or an unknown one
        raise UserError(
            f"the model's chat template refuses conversation {number}: {first_line(error)}",
            field="task.train",
            hint="correct or remove it",
        ) from error
    return ids, spans


def apply_template(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], **options: Any) -> list[int]:  # noqa: ANN401
    """The tokens of messages in the model's chat template."""
    encoded: Any = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **options)
    return list(encoded["input_ids"])


def _count_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
