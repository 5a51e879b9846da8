"""A trimmed vocabulary reads any text, reads texts of its pieces as before, and the model answers to them as before."""

from __future__ import annotations

import json
from typing import Any, cast

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
from probescale.models.shrink.tokenizer import TokenizerVocabulary
from probescale.models.shrink.vocabulary import trim_vocabulary
from probescale.models.surgery import save_model, write_model
from probescale.models.tokenizers import tokenizer_fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_read_and_answered_as_before(kind):
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
    ]  # tied alike


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_fall_by_the_rows(kind):
    before, after = parent(kind), trimmed(kind, 25)
    rows = before.model.config.vocab_size
    numbers = sum(p.numel() // rows for p in before.model.parameters() if rows in p.shape)
    one, other = (count_parameters(loaded.model, loaded.family) for loaded in (before, after))
    assert one.total - other.total == numbers * (rows - after.model.config.vocab_size)
    assert one.layers == other.layers
    assert one.embeddings > other.embeddings


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=30) | st.lists(st.sampled_from(" ".join(CORPUS).split()), max_size=6).map(" ".join))
@example(text="\x00 \x07\r\n\u202e\u05e9\u05dc\u05d5\u05dd 👩‍👩‍👧‍👦🇩🇪 \ufffd\U0010fffd")
@example(text=" ".join(OTHERS))
@example(text="a" * 150)
def test_any_text_still_encodes(kind, text):
    before = parent(kind)
    pieces = tokens(before, text)
    for after in (trimmed(kind), trimmed(kind, 0), trimmed(kind, 25)):
        numbers = after.tokenizer(text)["input_ids"]
        assert all(0 <= number < after.model.config.vocab_size for number in numbers)
        if set(pieces) <= after.tokenizer.get_vocab().keys():
            assert tokens(after, text) == pieces
        if kind in BYTES:
            assert cast("str", after.tokenizer.decode(numbers, skip_special_tokens=True)) == text
        elif kind == "llama2":
            assert after.tokenizer.decode(numbers) == before.tokenizer.decode(before.tokenizer(text)["input_ids"])


@pytest.mark.parametrize("kind", ["bert", "mpnet", "t5", "xlm_roberta"])
def test_no_character_of_the_texts_becomes_unknown(kind):
    """However small the limit: here nothing but what always stays."""
    before, after = parent(kind), trimmed(kind, 0)
    unknown = str(before.tokenizer.unk_token)
    for text in TEXTS:
        assert tokens(after, text).count(unknown) == tokens(before, text).count(unknown)
    assert "“" in after.tokenizer.get_vocab()


def test_what_becomes_unknown():
    """Only characters that are in no counted text and not in ASCII, and only where the limit asks for it."""
    before, foreign = parent("bert"), "这 größere naïvest ~"
    assert "[UNK]" not in tokens(before, foreign)
    assert tokens(trimmed("bert"), foreign).count("[UNK]") == 0
    assert tokens(trimmed("bert", 0), foreign)[1:4] == ["[UNK]", "[UNK]", "n"]
    assert tokens(trimmed("bert", 0), "aé ##b") == ["[CLS]", "a", "##e", "#", "#", "b", "[SEP]"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [0, 1, 25])
def test_the_limit_holds(kind, room):
    whole, found = len(trimmed(kind).tokenizer), len(trimmed(kind, room).tokenizer)
    assert found <= min(least(kind) + room, whole)
    parts = "merges" in TokenizerVocabulary(parent(kind).tokenizer).model  # a piece may not come alone
    assert parts or found == min(least(kind) + room, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_frequent_pieces_come_first(kind):
    stay = set(trimmed(kind, 0).tokenizer.get_vocab())
    more = set(trimmed(kind, 25).tokenizer.get_vocab()) - stay
    counts, vocabulary = counted(kind), TokenizerVocabulary(parent(kind).tokenizer)
    dropped = [piece for piece in counts if piece not in more | stay]
    by_choice = [p for p in more if counts[p]]
    assert by_choice
    if vocabulary.model["type"] != "BPE":
        assert min((counts[p] for p in more), default=0) >= max((counts[p] for p in dropped), default=0)
    merged = {vocabulary.tokens[n] for piece in by_choice for n in vocabulary.merge_parts(vocabulary.ids[piece])}
    assert more <= merged | set(by_choice) | {vocabulary.tokens[n] for n in vocabulary.characters}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [None, 25])
def test_twice_is_once(kind, room):
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
    checks = []
    for kind in KINDS:
        after = trimmed(kind, 25)
        params = count_parameters(after.model, after.family).total
        checks.append(prepare_proof(after, compute_own_reference(after.model, after.family), params, tmp_path / kind))
        write_model(after, tmp_path / kind)
    for kind, proof in zip(KINDS, prove_folders(checks), strict=True):
        assert isinstance(proof, Proof), (kind, proof)
        assert proof.to_the_bit, kind


def test_stock_classes_answer_alike(tmp_path):
    """Saved as it is, and loaded by the names that everybody uses."""
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
