"""A trimmed tokenizer encodes any text, and texts of its tokens as before; the outputs for them do not change."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from helpers.tokenizers import (
    BYTES,
    CORPUS,
    KINDS,
    OTHERS,
    TEXTS,
    counted,
    least,
    old_numbers,
    parent,
    same_answers,
    tokens,
    trimmed,
)
from probescale.models.counting import count_parameters
from probescale.models.loading import load_as_saved
from probescale.models.proof.comparison import Proof, prepare_proof, prove_folders
from probescale.models.proof.reference import compute_own_reference
from probescale.models.saving import save_model, write_model
from probescale.models.shrink.tokenizer import TokenizerVocabulary
from probescale.models.shrink.vocabulary import count_needed, count_tokens, expected_shares, trim_vocabulary
from probescale.models.tokenizers import tokenizer_fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_token_ids_and_outputs_of_the_texts_do_not_change(kind):
    before, after = parent(kind), trimmed(kind)
    weights = {name: weight.clone() for name, weight in before.model.state_dict().items()}
    fingerprint = tokenizer_fingerprint(before.tokenizer)
    assert len(after.tokenizer) < len(before.tokenizer)
    for text in TEXTS:
        assert tokens(after, text) == tokens(before, text)
        assert after.tokenizer.decode(after.tokenizer(text)["input_ids"]) == before.tokenizer.decode(
            before.tokenizer(text)["input_ids"]
        )
        pair, known = after.tokenizer(text, "good"), before.tokenizer(text, "good")
        assert pair.get("token_type_ids") == known.get("token_type_ids")
        assert after.tokenizer.convert_ids_to_tokens(pair["input_ids"]) == before.tokenizer.convert_ids_to_tokens(
            known["input_ids"]
        )
    same_answers(before, after, TEXTS[-4:])
    assert all(torch.equal(weights[name], weight) for name, weight in before.model.state_dict().items())
    assert tokenizer_fingerprint(before.tokenizer) == fingerprint
    assert old_numbers(before, after) == sorted(old_numbers(before, after))


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_tokens_as_texts_need_leave_them_as_they_are(kind):
    before = parent(kind)
    needed = count_needed(before, counted(kind))
    after = trim_vocabulary(before, counted(kind), needed)
    assert len(after.tokenizer) == needed
    assert all(tokens(after, text) == tokens(before, text) for text in TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_settings(kind):
    before, after = parent(kind), trimmed(kind, 25)
    assert type(after.model) is type(before.model)
    assert type(after.tokenizer) is type(before.tokenizer)
    for name in ("model_max_length", "padding_side", "model_input_names", "special_tokens_map", "name_or_path"):
        assert getattr(after.tokenizer, name) == getattr(before.tokenizer, name), name
    rows = after.model.config.vocab_size
    assert len(after.tokenizer) == rows == cast("nn.Embedding", after.model.get_input_embeddings()).num_embeddings
    old = old_numbers(before, after)
    sources = [(before.model.config, after.model.config)]
    if before.model.can_generate():
        sources.append((before.model.generation_config, after.model.generation_config))  # type: ignore[arg-type]
    for one, other in sources:
        for name, value in vars(one).items():
            if name.endswith("token_id") and value is not None:
                now = getattr(other, name)
                assert ([old[n] for n in now] if isinstance(value, list) else old[now]) == value, name
    assert [n for n, _ in before.model.named_parameters()] == [
        n for n, _ in after.model.named_parameters()
    ]  # with the same ties


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_dropped_tokens_are_gone(kind):
    before, after = parent(kind), trimmed(kind, 25)
    rows = before.model.config.vocab_size
    per_token = sum(p.numel() // rows for p in before.model.parameters() if rows in p.shape)
    old, new = (count_parameters(loaded.model, loaded.family) for loaded in (before, after))
    assert old.total - new.total == per_token * (rows - after.model.config.vocab_size)
    assert old.layers == new.layers
    assert old.embeddings > new.embeddings


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=30) | st.lists(st.sampled_from(" ".join(CORPUS).split()), max_size=6).map(" ".join))
@example(text="\x00 \x07\r\n\u202e\u05e9\u05dc\u05d5\u05dd 👩‍👩‍👧‍👦🇩🇪 \ufffd\U0010fffd")
@example(text=" ".join(OTHERS))
@example(text="a" * 150)
def test_any_text_still_encodes(kind, text):
    before = parent(kind)
    expected = tokens(before, text)
    for after in (trimmed(kind), trimmed(kind, 0), trimmed(kind, 25)):
        numbers = after.tokenizer(text)["input_ids"]
        assert all(0 <= number < after.model.config.vocab_size for number in numbers)
        if set(expected) <= after.tokenizer.get_vocab().keys():
            assert tokens(after, text) == expected
        if kind in BYTES:
            assert cast("str", after.tokenizer.decode(numbers, skip_special_tokens=True)) == text
        elif kind == "llama2":
            assert after.tokenizer.decode(numbers) == before.tokenizer.decode(before.tokenizer(text)["input_ids"])


@pytest.mark.parametrize("kind", ["bert", "mpnet", "t5", "xlm_roberta"])
def test_no_character_of_the_texts_becomes_unknown(kind):
    """However small the limit: here only required tokens are kept."""
    before, after = parent(kind), trimmed(kind, 0)
    unknown = str(before.tokenizer.unk_token)
    for text in TEXTS:
        assert tokens(after, text).count(unknown) == tokens(before, text).count(unknown)
    assert "“" in after.tokenizer.get_vocab()


def test_which_characters_become_unknown():
    """Only those that occur in no text and are not ASCII, and only where the limit requires it."""
    before, foreign = parent("bert"), "这 größere naïvest ~"
    assert "[UNK]" not in tokens(before, foreign)
    assert tokens(trimmed("bert"), foreign).count("[UNK]") == 0
    assert tokens(trimmed("bert", 0), foreign)[1:4] == ["[UNK]", "[UNK]", "n"]
    assert tokens(trimmed("bert", 0), "aé ##b") == ["[CLS]", "a", "##e", "#", "#", "b", "[SEP]"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [0, 1, 25])
def test_the_limit_holds(kind, room):
    unlimited, limited = len(trimmed(kind).tokenizer), len(trimmed(kind, room).tokenizer)
    assert limited <= min(least(kind) + room, unlimited)
    merges = "merges" in TokenizerVocabulary(parent(kind).tokenizer).model  # a token may need others
    assert merges or limited == min(least(kind) + room, unlimited)


@pytest.mark.parametrize("kind", KINDS)
def test_frequent_tokens_come_first(kind):
    required = set(trimmed(kind, 0).tokenizer.get_vocab())
    more = set(trimmed(kind, 25).tokenizer.get_vocab()) - required
    counts, vocabulary = counted(kind), TokenizerVocabulary(parent(kind).tokenizer)
    dropped = [token for token in counts if token not in more | required]
    by_choice = [p for p in more if counts[p]]
    assert by_choice
    if vocabulary.model["type"] != "BPE":
        assert min((counts[p] for p in more), default=0) >= max((counts[p] for p in dropped), default=0)
    merged = {vocabulary.tokens[n] for token in by_choice for n in vocabulary.merge_parts(vocabulary.ids[token])}
    assert more <= merged | set(by_choice) | {vocabulary.tokens[n] for n in vocabulary.characters}


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_room_beyond_the_texts_goes_to_tokens_that_are_frequent_in_general(kind):
    seen, before = set(trimmed(kind).tokenizer.get_vocab()), parent(kind).tokenizer
    room = len(seen) + 5 - least(kind)
    more = set(trimmed(kind, room).tokenizer.get_vocab())
    every = [token for token, _ in sorted(before.get_vocab().items(), key=lambda pair: pair[1])]
    unseen = [token for token in every if token not in seen and not token.startswith("[unused")]
    assert more == seen | set(unseen[:5])


def test_expected_shares_are_those_of_new_texts():
    """Texts drawn by Zipf's law from the tokenizer's words: half of them tell what share of the others they cover."""
    tokenizer = parent("bert").tokenizer
    words = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1]) if token.isalpha()]
    random = np.random.default_rng(0)
    weights = 1 / np.arange(3, len(words) + 3)
    drawn = [random.choice(words, count, p=weights / weights.sum()) for count in (1000, 10_000)]
    known, new = (count_tokens(tokenizer, part.tolist()) for part in drawn)
    shares = expected_shares(tokenizer, known)
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares)[: len(known)] == [token for token, _ in known.most_common()]
    covered = 0.0
    for size, (token, share) in enumerate(shares.items(), 1):
        covered += share
        if size in (20, len(known), len(known) + 20):
            kept = set(list(shares)[:size])
            assert covered == pytest.approx(sum(n for t, n in new.items() if t in kept) / sum(new.values()), abs=0.08)
            assert token in shares


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [None, 25])
def test_trimming_twice_changes_nothing(kind, room):
    once = trimmed(kind, room)
    twice = trim_vocabulary(once, counted(kind), None if room is None else least(kind) + room)
    assert tokenizer_fingerprint(twice.tokenizer) == tokenizer_fingerprint(once.tokenizer)
    assert twice.fingerprint == once.fingerprint
    assert twice.model.config.to_dict() == once.model.config.to_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_stock_transformers_loads_the_same_tokenizer(kind, tmp_path):
    after = trimmed(kind, 25)
    after.model.config.save_pretrained(tmp_path)
    after.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is type(after.tokenizer)
    assert again.get_vocab() == after.tokenizer.get_vocab()
    for text in CORPUS:
        assert again(text).data == after.tokenizer(text).data


@pytest.mark.slow
def test_saved_and_proved(tmp_path):
    after = trimmed("classifier", 25)
    save_model(after, {"vocabulary": len(after.tokenizer)}, tmp_path / "model")
    record = json.loads((tmp_path / "model" / "probescale.json").read_text())
    assert record["params"] == record["proof"]["params_on_disk"] == count_parameters(after.model, after.family).total
    assert record["proof"]["to_the_bit"]
    same_answers(after, load_as_saved(str(tmp_path / "model")), TEXTS[:3])


@pytest.mark.slow
def test_every_kind_is_the_same_in_a_fresh_process(tmp_path):
    jobs = []
    for kind in KINDS:
        after = trimmed(kind, 25)
        params = count_parameters(after.model, after.family).total
        jobs.append(prepare_proof(after, compute_own_reference(after.model, after.family), params, tmp_path / kind))
        write_model(after, tmp_path / kind)
    for kind, proof in zip(KINDS, prove_folders(jobs), strict=True):
        assert isinstance(proof, Proof), (kind, proof)
        assert proof.to_the_bit, kind


def test_stock_classes_give_the_same_logits(tmp_path):
    """Saved with save_pretrained, and loaded with the Auto classes."""
    after = trimmed("classifier", 25)
    after.model.save_pretrained(tmp_path)
    after.tokenizer.save_pretrained(tmp_path)
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    known = after.tokenizer(TEXTS, return_tensors="pt", padding=True)
    assert torch.equal(inputs["input_ids"], known["input_ids"])
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, cast("Any", after.model)(**known).logits)
