from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.data import labelled_rows
from helpers.models import FAMILIES, LAYERS
from probescale.errors import UserError
from probescale.models.batching import batches_by_tokens
from probescale.models.loading import load_as_saved
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.probing.views import find_separator, tokenize_with_views
from probescale.tasks.data import Examples, TaggedSentences

ROWS = labelled_rows(24, seed=3)
SINGLE = Examples(tuple(t * (1 + i % 3) for i, (t, _) in enumerate(ROWS)), None, (0, 1) * 12, ("a", "b"))
PAIRS = Examples(SINGLE.texts, tuple(t for t, _ in labelled_rows(24, seed=4)), (0, 1) * 12, ("a", "b"))
WORDS = ("the", "film", "was", "unbelievably", "good", ",", "so")
TAGGED = TaggedSentences((WORDS, ("dull",)), (tuple(range(7)), (7,)), tuple("abcdefgh"))


@pytest.fixture(params=FAMILIES)
def loaded(request, model_folder):
    return load_as_saved(str(model_folder(request.param)))


def compute_features(loaded, data, pooling, batch_tokens=300, **options):
    """Every site of one request as arrays, in the order of the data."""
    with Store.open(keep=False) as store:
        settings = PassSettings(batch_tokens=batch_tokens, **options)
        features = represent(loaded, [Request(data, pooling)], store, settings)[0]
        return {site: features.load(site, np.arange(len(features))) for site in features.widths}


def compute_layers(loaded, data, pooling, batch_tokens=300, **options):
    features = compute_features(loaded, data, pooling, batch_tokens, **options)
    return np.stack([features[f"layer-{layer:03d}"] for layer in range(1, LAYERS + 1)])


POOLINGS = ("cls", "mean", "max", "last", "sep")


def compute_all_features(loaded, data, poolings, batch_tokens):
    """{(pooling, site): rows} from one pass."""
    requests = [Request(data, pooling) for pooling in poolings]
    settings = PassSettings(max_length=64, batch_tokens=batch_tokens, granularity=("sublayer", "head"))
    with Store.open(keep=False) as store:
        pooled = zip(poolings, represent(loaded, requests, store, settings), strict=True)
        return {(p, site): rows.load(site, np.arange(len(rows))) for p, rows in pooled for site in rows.widths}


def test_neither_batch_size_nor_order_changes_a_feature(loaded):
    together = compute_all_features(loaded, PAIRS, POOLINGS, batch_tokens=100_000)
    alone = compute_all_features(loaded, PAIRS, POOLINGS, batch_tokens=1)
    order = np.random.default_rng(0).permutation(24)
    shuffled = compute_all_features(loaded, PAIRS.take(order.tolist()), POOLINGS, batch_tokens=300)
    assert len(together) == len(POOLINGS) * (1 + 4 * LAYERS)
    for key, rows in together.items():
        np.testing.assert_allclose(alone[key], rows, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(shuffled[key], rows[order], rtol=1e-5, atol=1e-5)


def test_neither_batch_size_nor_order_changes_a_word(loaded):
    words = tuple(tuple(text.split()[: 3 + i % 9]) for i, (text, _) in enumerate(ROWS))  # none is cut
    data = TaggedSentences(words, tuple((0,) * len(w) for w in words), ("a", "b"))
    together = compute_all_features(loaded, data, ("token", "token_mean"), batch_tokens=100_000)
    alone = compute_all_features(loaded, data, ("token", "token_mean"), batch_tokens=1)
    reversed_order = compute_all_features(
        loaded, data.take(range(23, -1, -1)), ("token", "token_mean"), batch_tokens=300
    )
    ends = np.cumsum([len(w) for w in words])
    rows = np.concatenate([np.arange(end - len(w), end) for w, end in list(zip(words, ends, strict=True))[::-1]])
    for key, states in together.items():
        np.testing.assert_allclose(alone[key], states, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(reversed_order[key], states[rows], rtol=1e-5, atol=1e-5)


def test_states_are_the_blocks_own_outputs(loaded):
    """One sentence at a time, without the hooks; T5's last layer must not have the final norm."""
    features = compute_features(loaded, SINGLE, "mean", max_length=64)
    batch = loaded.tokenizer(SINGLE.texts[0], return_tensors="pt")
    with torch.no_grad():
        states = loaded.model.base_model(**batch, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(features["embeddings"][0], states[0][0].mean(0), rtol=1e-4, atol=1e-5)
    for layer in range(1, LAYERS):
        np.testing.assert_allclose(features[f"layer-{layer:03d}"][0], states[layer][0].mean(0), rtol=1e-4, atol=1e-5)
    last = states[LAYERS][0].mean(0).numpy()
    normed = loaded.family.name == "t5"
    assert np.allclose(features[f"layer-{LAYERS:03d}"][0], last, rtol=1e-4, atol=1e-5) != normed


def test_sublayers_add_up_to_the_layer_and_heads_to_the_attention(loaded):
    features = compute_features(loaded, SINGLE, "cls", granularity=("sublayer", "head"), max_length=64)
    block = loaded.family.layers(loaded.model)[1]
    projection = block.get_submodule(loaded.family.stack.attention_output)
    with torch.no_grad():
        projected = projection(torch.from_numpy(features["heads-002"])).numpy()
    np.testing.assert_allclose(projected, features["attention-002"], rtol=1e-4, atol=1e-4)
    if loaded.family.name == "t5":  # pre-norm: the parts add up to the block's output
        total = features["layer-001"] + features["attention-002"] + features["feed_forward-002"]
        np.testing.assert_allclose(total, features["layer-002"], rtol=1e-4, atol=1e-4)


def test_poolings_match_their_definitions(loaded):
    batch = loaded.tokenizer(SINGLE.texts[0], return_tensors="pt")
    with torch.no_grad():
        states = loaded.model.base_model(**batch, output_hidden_states=True).hidden_states[1][0].numpy()
    expected = {"cls": states[0], "last": states[-1], "mean": states.mean(0), "max": states.max(0)}
    for pooling, state in expected.items():
        pooled = compute_features(loaded, SINGLE, pooling, max_length=64)["layer-001"][0]
        np.testing.assert_allclose(pooled, state, rtol=1e-4, atol=1e-5)


def make_view(loaded, data, pooling, max_length=64):
    return tokenize_with_views(loaded.tokenizer, data, [(data, pooling)], max_length)[1][0]


def test_sep_is_the_token_between_the_texts(loaded):
    special = {loaded.tokenizer.sep_token_id, loaded.tokenizer.eos_token_id} - {None}
    view = make_view(loaded, PAIRS, "sep")
    assert len(view) == 24
    for row, position in enumerate(view.starts):
        encoded = loaded.tokenizer(*PAIRS.inputs[row], truncation=True, max_length=64)
        assert encoded["input_ids"][position] in special
        parts = encoded.sequence_ids(0)
        assert parts[position - 1] == 0, "the last token of the first text stands before it"
        assert 1 in parts[position:], "the second text comes after it"


def test_a_text_that_spells_the_separator_does_not_move_it(model_folder):
    loaded = load_as_saved(str(model_folder("bert")))
    data = Examples(("good [SEP] film",), ("the plot was dull",), (0,), ("a", "b"))
    parts = loaded.tokenizer(data.texts[0], "the plot was dull").sequence_ids(0)
    view = make_view(loaded, data, "sep")
    assert view.starts.tolist() == [find_separator(parts)]
    assert parts[view.starts[0] + 1] == 1


def test_words_are_aligned_with_their_tokens(loaded):
    first, all_tokens = make_view(loaded, TAGGED, "token"), make_view(loaded, TAGGED, "token_mean")
    assert first.inputs.tolist() == [0] * 7 + [1]
    assert first.words.tolist() == [*range(7), 0]
    encoded, text = loaded.tokenizer(" ".join(WORDS)), " ".join(WORDS)
    for row, word in enumerate(WORDS):
        assert text[encoded.token_to_chars(int(first.starts[row])).start :].lstrip().startswith(word)
        begin = encoded.token_to_chars(int(all_tokens.starts[row])).start
        end = encoded.token_to_chars(int(all_tokens.ends[row]) - 1).end
        assert text[begin:end].strip() == word, "all tokens of the word, and nothing else"
    assert (first.ends - first.starts == 1).all()
    assert (all_tokens.ends - all_tokens.starts).max() > 1


def test_words_without_a_tag_are_not_kept(loaded):
    data = TaggedSentences((WORDS,), ((0, -1, -1, 1, -1, -1, 0),), ("a", "b"))
    view = make_view(loaded, data, "token")
    assert view.words.tolist() == [0, 3, 6]
    some, everything = compute_layers(loaded, data, "token"), compute_layers(loaded, TAGGED, "token")
    assert some.shape == (LAYERS, 3, 32)
    np.testing.assert_allclose(some, everything[:, [0, 3, 6]], rtol=1e-5, atol=1e-5)


def test_a_token_that_is_only_a_space_is_not_used_for_the_word(model_folder):
    """Unigram tokenizers may split the space before a word from the word."""
    loaded = load_as_saved(str(model_folder("t5")))
    words = ("Zyx", "film", "Qqq")  # capitals are not in the vocabulary, so the space is a token of its own
    view = make_view(loaded, TaggedSentences((words,), ((0, 1, 0),), ("a", "b")), "token")
    tokens = loaded.tokenizer(" ".join(words)).tokens(0)
    first_tokens = [tokens[position] for position in view.starts]
    assert len(first_tokens) == 3
    assert all(token.strip("▁") for token in first_tokens), first_tokens


def test_words_beyond_the_length_limit_are_left_out(loaded):
    data = TaggedSentences((("good",) * 40,), ((0,) * 40,), ("a", "b"))
    kept = len(make_view(loaded, data, "token", max_length=8))
    assert 0 < kept < 9
    assert compute_layers(loaded, data, "token", max_length=8).shape == (LAYERS, kept, 32)


@pytest.mark.parametrize("pooling", ["cls", "last", "mean", "max"])
def test_left_padding_gives_the_same_features(model_folder, pooling):
    loaded = load_as_saved(str(model_folder("t5")))  # relative positions: padding side must not matter
    right = compute_layers(loaded, SINGLE, pooling, 100_000)
    loaded.tokenizer.padding_side = "left"
    left = compute_layers(loaded, SINGLE, pooling, 100_000)
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_requests_on_the_same_inputs_share_one_pass(loaded, tmp_path):
    passes = []
    handle = loaded.family.layers(loaded.model)[0].register_forward_pre_hook(lambda *_: passes.append(1))
    relabelled = Examples(SINGLE.texts, None, (1, 0) * 12, ("x", "y"))
    requests = [Request(SINGLE, "cls"), Request(SINGLE, "mean"), Request(relabelled, "cls")]
    with Store.open(keep=False) as store:
        cls, mean, relabelled_cls = represent(loaded, requests, store, PassSettings(batch_tokens=100_000))
        assert len(passes) == 1
        assert cls.folder == relabelled_cls.folder != mean.folder
        represent(loaded, [Request(SINGLE, "max")], store, PassSettings(batch_tokens=100_000))
    handle.remove()
    assert len(passes) == 2


def test_batches_hold_every_input_once_and_keep_the_limit():
    lengths = np.sort(np.random.default_rng(0).integers(1, 50, 200))[::-1]
    batches = [np.arange(200)[batch] for batch in batches_by_tokens(lengths, 120)]
    assert np.concatenate(batches).tolist() == list(range(200))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 120 for batch in batches)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_states_are_reported_with_layer_and_example(loaded, value):
    block = loaded.family.layers(loaded.model)[2]
    handle = block.register_forward_hook(lambda _block, _inputs, output: _spoil(output, value))
    with pytest.raises(UserError, match="layer-003 are not finite numbers for example 24"):
        compute_features(loaded, replace(SINGLE, texts=(*SINGLE.texts[:-1], "so")), "mean", batch_tokens=1)
    handle.remove()


def _spoil(output, value: float):
    """The output of a block, with `value` everywhere for texts of few tokens."""
    state = output[0] if isinstance(output, tuple) else output
    state = torch.where(torch.tensor(state.shape[1] < 5), torch.full_like(state, value), state)
    return (state, *output[1:]) if isinstance(output, tuple) else state
