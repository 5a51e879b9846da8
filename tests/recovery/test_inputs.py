"""Tokenized inputs: those that nobody reads have no tokens, and all others are what they are without that."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.data import labelled_rows
from helpers.models import tiny_tokenizer
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import TaggedSentences, load_rows

TEXTS = load_rows(labelled_rows(40))
WORDS = tuple(tuple(text.split()) for text in TEXTS.texts)
TAGGED = TaggedSentences(WORDS, tuple(tuple(place % 2 for place in range(len(words))) for words in WORDS), ("A", "B"))


@pytest.mark.parametrize("data", [TEXTS, TAGGED], ids=["texts", "tags"])
def test_some_inputs_are_tokenized_as_among_all(data):
    tokenizer, some = tiny_tokenizer("bert"), [31, 4, 17, 4]
    every, only = (build_inputs(tokenizer, data, 32, numbers) for numbers in (None, some))
    assert (len(only), only.rows) == (len(every), every.rows)
    assert np.flatnonzero(only.tokens.lengths).tolist() == [4, 17, 31]
    batches = [inputs.collate(tokenizer, [inputs[number] for number in some]) for inputs in (every, only)]
    assert batches[0].keys() == batches[1].keys()
    assert all((batches[0][name] == batches[1][name]).all() for name in batches[0])
