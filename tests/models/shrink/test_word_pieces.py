"""What words become after trimming the vocabulary."""

from __future__ import annotations

import pytest

from probescale.models.shrink.word_pieces import measure_pieces


def make(kind: str, words: list[str]):
    """A tokenizer with these words, and every letter."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz"
    if kind == "wordpiece":
        entries = ["[UNK]", *letters, *(f"##{letter}" for letter in letters), *words]
        tokenizer = Tokenizer(models.WordPiece({entry: n for n, entry in enumerate(entries)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        entries = ["<unk>", "▁", *letters, *(f"▁{word}" for word in words)]
        scores = [(entry, -1.0 if len(entry) > 1 else -9.0) for entry in entries]
        tokenizer = Tokenizer(models.Unigram(scores, unk_id=0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=entries[0])


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_unseen_words_that_are_spelled_out_are_counted(kind):
    full, small = make(kind, ["good", "film", "plot"]), make(kind, ["good"])
    found = measure_pieces(small, full, ["good film", "a plot quips"], ["good good"])
    assert found.words == 4, "a single letter cannot be spelled out"
    assert found.unseen == 3
    assert found.spelled == 1
    assert found.spelled_before == pytest.approx(1 / 3, abs=1e-4), "quips has no token of its own in either"
    assert found.pieces > found.pieces_before
    assert "Of 3 words that the training texts do not have, 100.0% are spelled out" in found.sentence()


def test_where_nothing_is_unseen_nothing_is_spelled_out():
    tokenizer = make("wordpiece", ["good"])
    found = measure_pieces(tokenizer, tokenizer, ["Good"], ["good film"])
    assert (found.unseen, found.spelled) == (0, 0)
    assert found.pieces == found.pieces_before
    assert "no word" in found.sentence()
