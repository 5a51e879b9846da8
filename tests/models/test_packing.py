"""Blocks of running text: every token is predicted once, and of a conversation only the answers."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.decoders import sentences, word_tokenizer
from probescale.errors import UserError
from probescale.models.packing import find_prefix, pack
from probescale.tasks.documents import Documents

TEXTS = tuple(sentences(9))


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_every_token_is_predicted_once_from_what_stands_before_it(prefix: bool, whole: bool):
    tokenizer = word_tokenizer(prefix=prefix)
    blocks = pack(tokenizer, Documents(TEXTS, whole=whole), 32)
    ends = [2] if whole else []
    encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] + ends for text in TEXTS]
    stream = [token for ids in encoded for token in ids]
    assert blocks.targets.tolist() == (stream if prefix else stream[1:])
    rows = np.concatenate([blocks.rows_of(number) for number in range(len(blocks.tokens))])
    assert rows[rows >= 0].tolist() == list(range(len(blocks.targets)))
    for number in range(len(blocks.tokens)):
        ids, own = blocks.tokens[number]["input_ids"], blocks.rows_of(number)
        assert len(ids) == len(own) <= 32
        assert ids[: prefix + 0] == find_prefix(tokenizer)
        for place in range(len(ids) - 1):
            assert blocks.targets[own[place]] == ids[place + 1]  # the next token of the block is what is predicted
    sizes = [blocks.row_bytes[first:end].sum() for first, end in zip(blocks.starts, blocks.starts[1:], strict=False)]
    assert np.allclose(sizes, [len(text) for text in TEXTS])


def test_of_a_conversation_the_answers_are_predicted():
    tokenizer = word_tokenizer()
    chat = (("user", "who?"), ("assistant", "the fox."), ("user", "where?"), ("assistant", "at home."))
    blocks = pack(tokenizer, Documents(("x",), (chat,)), 64)
    assert tokenizer.decode(blocks.targets) == "the fox.<|end|>at home.<|end|>"
    assert blocks.row_bytes.sum() == pytest.approx(len("the fox.at home."))
    short = pack(tokenizer, Documents(("x",), (chat,)), 12)
    assert len(short.tokens[0]["input_ids"]) == 12
    assert 0 < len(short.targets) < len(blocks.targets)
    assert short.row_bytes[0] == pytest.approx(blocks.row_bytes[0])  # what is cut off is not counted


def test_conversations_need_a_chat_template():
    tokenizer = word_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        pack(tokenizer, Documents(("x",), ((("user", "a"), ("assistant", "b")),)), 32)
