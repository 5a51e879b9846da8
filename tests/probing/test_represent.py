from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import FAMILIES, LAYERS, labelled_rows
from probescale.models.batching import batches_by_tokens
from probescale.models.loading import load_as_saved
from probescale.probing.represent import represent, sentence_inputs, separator, word_inputs
from probescale.tasks.data import Examples, TaggedSentences

ROWS = labelled_rows(24, seed=3)
SINGLE = Examples(tuple(t * (1 + i % 3) for i, (t, _) in enumerate(ROWS)), None, (0, 1) * 12, ("a", "b"))
PAIRS = Examples(SINGLE.texts, tuple(t for t, _ in labelled_rows(24, seed=4)), (0, 1) * 12, ("a", "b"))


@pytest.fixture(params=FAMILIES)
def loaded(request, model_folder):
    return load_as_saved(str(model_folder(request.param)))


@pytest.mark.parametrize("pooling", ["cls", "mean", "sep"])
def test_neither_batch_size_nor_order_changes_a_feature(loaded, pooling):
    data = PAIRS if pooling == "sep" else SINGLE
    whole = represent(loaded, sentence_inputs(loaded, data, pooling, 64), batch_tokens=100_000)
    assert whole.shape == (LAYERS, 24, 32)
    alone = represent(loaded, sentence_inputs(loaded, data, pooling, 64), batch_tokens=1)
    np.testing.assert_allclose(alone, whole, rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(0).permutation(24)
    shuffled = represent(loaded, sentence_inputs(loaded, data.take(order.tolist()), pooling, 64), batch_tokens=300)
    np.testing.assert_allclose(shuffled, whole[:, order], rtol=1e-5, atol=1e-5)


def test_states_are_the_blocks_own_outputs(loaded):
    """One sentence at a time, block by block, without the hooks; T5's last layer must not have the final norm."""
    features = represent(loaded, sentence_inputs(loaded, SINGLE, "mean", 64), batch_tokens=300)
    batch = loaded.tokenizer(SINGLE.texts[0], return_tensors="pt")
    with torch.no_grad():
        states = loaded.model.base_model(**batch, output_hidden_states=True).hidden_states
    for layer in range(1, LAYERS):
        np.testing.assert_allclose(features[layer - 1, 0], states[layer][0].mean(0), rtol=1e-4, atol=1e-5)
    last = states[LAYERS][0].mean(0).numpy()
    normed = loaded.family.name == "t5-encoder"
    assert np.allclose(features[-1, 0], last, rtol=1e-4, atol=1e-5) != normed


def test_sep_is_the_token_between_the_texts(loaded):
    inputs = sentence_inputs(loaded, PAIRS, "sep", 64)
    assert inputs.positions is not None
    special = {loaded.tokenizer.sep_token_id, loaded.tokenizer.eos_token_id} - {None}
    for row, (position,) in enumerate(inputs.positions):
        ids = inputs.encoded["input_ids"][row]
        assert ids[position] in special
        parts = inputs.encoded.sequence_ids(row)
        assert parts[position - 1] == 0, "the last token of the first text stands before it"
        assert 1 in parts[position:], "the second text comes after it"


def test_a_text_that_spells_the_separator_does_not_move_it(model_folder):
    loaded = load_as_saved(str(model_folder("bert")))
    data = Examples(("good [SEP] film",), ("the plot was dull",), (0,), ("a", "b"))
    encoded = sentence_inputs(loaded, data, "sep", 64)
    assert encoded.positions == [[separator(encoded.encoded.sequence_ids(0))]]
    assert encoded.positions is not None
    assert encoded.encoded.sequence_ids(0)[encoded.positions[0][0] + 1] == 1


def test_words_are_found_at_their_first_piece(loaded):
    words = ("the", "film", "was", "unbelievably", "good", ",", "so")
    data = TaggedSentences((words, ("dull",)), (tuple(range(7)), (7,)), tuple("abcdefgh"))
    inputs, tags, owners = word_inputs(loaded, data, 64)
    assert tags.tolist() == list(range(8))
    assert owners.tolist() == [0] * 7 + [1]
    assert inputs.positions is not None
    spans = [inputs.encoded.token_to_chars(0, position) for position in inputs.positions[0]]
    starts = [span.start for span in spans if span is not None]
    text = " ".join(words)
    for start, word in zip(starts, words, strict=True):
        assert text[start:].lstrip().startswith(word)
    assert inputs.positions[0] == sorted(set(inputs.positions[0]))
    features = represent(loaded, inputs, batch_tokens=300)
    alone = represent(loaded, inputs, batch_tokens=1)
    assert features.shape == (LAYERS, 8, 32)
    np.testing.assert_allclose(features, alone, rtol=1e-5, atol=1e-5)


def test_a_piece_that_is_only_a_blank_is_not_taken_for_the_word(model_folder):
    """Unigram tokenizers may split the blank before a word from the word."""
    loaded = load_as_saved(str(model_folder("t5-encoder")))
    words = ("Zyx", "film", "Qqq")  # capitals are not in the vocabulary, so the blank stands alone
    inputs, tags, _ = word_inputs(loaded, TaggedSentences((words,), ((0, 1, 0),), ("a", "b")), 64)
    assert inputs.positions is not None
    pieces = [inputs.encoded.tokens(0)[position] for position in inputs.positions[0]]
    assert len(tags) == 3
    assert all(piece.strip("▁") for piece in pieces), pieces


def test_words_beyond_the_length_limit_are_left_out(loaded):
    data = TaggedSentences((("good",) * 40,), ((0,) * 40,), ("a", "b"))
    inputs, tags, _ = word_inputs(loaded, data, 8)
    assert 0 < len(tags) < 9
    assert represent(loaded, inputs, batch_tokens=300).shape == (LAYERS, len(tags), 32)


def test_left_padding_gives_the_same_features(model_folder):
    loaded = load_as_saved(str(model_folder("t5-encoder")))  # relative positions: padding side must not matter
    right = represent(loaded, sentence_inputs(loaded, SINGLE, "cls", 64), batch_tokens=100_000)
    loaded.tokenizer.padding_side = "left"
    left = represent(loaded, sentence_inputs(loaded, SINGLE, "cls", 64), batch_tokens=100_000)
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_batches_hold_every_input_once_and_keep_the_limit():
    lengths = np.random.default_rng(0).integers(1, 50, 200)
    batches = list(batches_by_tokens(lengths, 120))
    assert sorted(i for batch in batches for i in batch) == list(range(200))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 120 for batch in batches)
