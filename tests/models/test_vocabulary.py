"""A trimmed vocabulary reads any text, reads texts of its pieces as before, and the model answers to them as before."""

from __future__ import annotations

import csv
import functools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    set_seed,
)

from conftest import SHARED, labelled_rows, real_weights
from probescale.errors import ProofFailed, UserError
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES, family_of
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.parent import answers as wanted
from probescale.models.proof import Proof, check_folders, folder_check
from probescale.models.surgery import extract, save_model, write_model
from probescale.models.tokenizer_trim import PLAIN, Pieces, rebuilt
from probescale.models.tokenizers import tokenizer_fingerprint
from probescale.models.vocabulary import VocabularyNote, needed, piece_counts, trim_vocabulary, vocabulary_note

TEXTS = [text for text, _ in labelled_rows(40, seed=3)] + ["A naïve café, 100 % “good”!", "aaa aaaa banana"]
OTHERS = [
    "Ένα μικρό κείμενο στα ελληνικά", "короткий текст на русском языке", "这是一个很短的句子", "これは短い文です",
    "نص قصير باللغة العربية", "ein längerer Text über größere Wörter und Straßen", "déjà vu façade garçon naïveté",
    "characters that no other text has: ~ ^ { } < > @ # $ & * = + [ ] | ; : ? / 0123456789 QXZJKVWY", "banana bandana",
]  # fmt: skip
CORPUS = TEXTS + OTHERS * 3
WORDS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
Made = tuple[PreTrainedTokenizerFast, str, dict[str, Any]]  # tokenizer, class of the model, what its config says


def trained(model: Any, trainer: Any, before: Any, normalizer: Any = None) -> dict[str, Any]:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = before
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"]


@functools.cache
def wordpieces(*specials: str) -> dict[str, int]:
    """Pieces that are specials, unused places and words, in this order."""
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=[*specials, "[unused0]", "[unused1]"])
    normalizer = normalizers.BertNormalizer()
    model = models.WordPiece(unk_token="[UNK]")  # type: ignore[call-arg]
    return trained(model, trainer, pre_tokenizers.BertPreTokenizer(), normalizer)["vocab"]


@functools.cache
def byte_pairs(*specials: str) -> tuple[dict[str, int], Any]:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=list(specials), initial_alphabet=alphabet)
    model = trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@functools.cache
def unigrams(*specials: str) -> list[tuple[str, float]]:
    trainer = trainers.UnigramTrainer(vocab_size=500, special_tokens=list(specials), unk_token="<unk>")
    return [tuple(entry) for entry in trained(models.Unigram(), trainer, pre_tokenizers.Metaspace())["vocab"]]


def bert() -> Made:
    ids = {"pad_token_id": 0}
    vocab = wordpieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return transformers.BertTokenizer(vocab=vocab, model_max_length=77), "BertForMaskedLM", ids


def electra() -> Made:
    return bert()[0], "ElectraForMaskedLM", {"pad_token_id": 0, "embedding_size": 24}


def classifier() -> Made:
    return bert()[0], "BertForSequenceClassification", {"pad_token_id": 0, "num_labels": 3}


def mpnet() -> Made:
    """Specials at both ends and in between, as in the real one."""
    vocab = wordpieces("<s>", "<pad>", "</s>", "<unk>", "[unused2]", "[UNK]")
    vocab = vocab | {"<mask>": len(vocab)}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return transformers.MPNetTokenizer(vocab=vocab), "MPNetForMaskedLM", ids


def roberta() -> Made:
    vocab, merges = byte_pairs("<s>", "<pad>", "</s>", "<unk>")
    vocab = vocab | {"<mask>": len(vocab)}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return transformers.RobertaTokenizer(vocab=vocab, merges=merges), "RobertaForMaskedLM", ids


def gpt2() -> Made:
    """Its only special piece comes last; others are added behind the vocabulary."""
    vocab, merges = byte_pairs()
    vocab = vocab | {"<|endoftext|>": len(vocab)}
    tokenizer = transformers.GPT2Tokenizer(vocab=vocab, merges=merges, pad_token="<|pad|>")
    tokenizer.add_tokens(["brilliantly", "bandana"])
    end = len(vocab) - 1
    return tokenizer, "GPT2LMHeadModel", {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end + 1}


def bart() -> Made:
    tokenizer, _, ids = roberta()
    ids = ids | {"decoder_start_token_id": 2, "forced_eos_token_id": 2, "encoder_layers": 2, "decoder_layers": 2}
    return tokenizer, "BartForConditionalGeneration", ids | {"d_model": 32, "encoder_ffn_dim": 48}


def llama() -> Made:
    """Special pieces behind all others, and two processors in a row, as in Llama 3."""
    vocab, merges = byte_pairs()
    first = len(vocab)
    vocab = vocab | {"<|begin|>": first, "<|end|>": first + 1, "<|pad|>": first + 2}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    split = pre_tokenizers.Split(r"\s*\S+", "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    begin = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", first)]
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(), begin])  # type: ignore[assignment]
    names = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    ids = {"bos_token_id": first, "eos_token_id": [first + 1, first + 2], "pad_token_id": first + 2}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    return tokenizer, "LlamaForCausalLM", ids | {"tie_word_embeddings": False}


def llama2() -> Made:
    """All merges that make a piece, ranked by the piece, and bytes for what has no piece."""
    scored = unigrams("<unk>", "<s>", "</s>")
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {piece: n for n, piece in enumerate([*(p for p, _ in scored[:3]), *fallback, *(p for p, _ in scored[3:])])}
    ordinary = [p for p in vocab if p not in fallback and len(p) > 1 and p not in ("<unk>", "<s>", "</s>")]
    splits = [(piece[:at], piece[at:]) for piece in ordinary for at in range(1, len(piece))]
    merges = [(left, right) for left, right in splits if left in vocab and right in vocab]
    tokenizer = transformers.LlamaTokenizer(vocab=vocab, merges=merges, pad_token="</s>", add_bos_token=True)
    return tokenizer, "LlamaForCausalLM", {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}


def t5() -> Made:
    """The model has more rows than the tokenizer has pieces."""
    scored = [*unigrams("<pad>", "</s>", "<unk>"), *((f"<extra_id_{n}>", 0.0) for n in reversed(range(10)))]
    tokenizer = transformers.T5Tokenizer(vocab=scored, extra_ids=10)
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "vocab_size": len(scored) + 28}
    return tokenizer, "T5ForConditionalGeneration", ids


def xlm_roberta() -> Made:
    scored = [*unigrams("<s>", "<pad>", "</s>", "<unk>"), ("<mask>", 0.0)]
    tokenizer = transformers.XLMRobertaTokenizer(vocab=scored)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return tokenizer, "XLMRobertaForSequenceClassification", ids


def word_level() -> Made:
    trainer = trainers.WordLevelTrainer(vocab_size=200, special_tokens=WORDS)  # type: ignore[call-arg]
    model = trained(models.WordLevel(unk_token="<unk>"), trainer, pre_tokenizers.BertPreTokenizer())  # type: ignore[call-arg]
    backend = Tokenizer(models.WordLevel(vocab=model["vocab"], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")
    return tokenizer, "DistilBertForSequenceClassification", {"pad_token_id": 0, "dim": 32, "hidden_dim": 48}


KINDS: dict[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        bert, electra, classifier, mpnet, roberta, gpt2, bart, llama, llama2, t5, xlm_roberta, word_level,
    )
}  # fmt: skip
BYTES = ("roberta", "gpt2", "bart", "llama")
SIZE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 90, "num_key_value_heads": 2,
}  # fmt: skip
T5_SIZE = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_heads": 4, "num_layers": 2, "relative_attention_num_buckets": 8}


@functools.cache
def parent(kind: str) -> LoadedModel:
    """Random weights, biases of the vocabulary included."""
    tokenizer, name, ids = KINDS[kind]()
    cls = getattr(transformers, name)
    set_seed(2)
    size = T5_SIZE if kind == "t5" else {} if kind == "bart" else SIZE
    model = cls(cls.config_class(**({"vocab_size": len(tokenizer)} | size | ids))).eval()
    with torch.no_grad():
        for weight in model.state_dict().values():
            if len(tokenizer) in weight.shape and weight.ndim < 3:
                weight.normal_()
    return LoadedModel(model, tokenizer, family_of(model.config), kind, "")


@functools.cache
def counted(kind: str) -> Counter[str]:
    return piece_counts(parent(kind).tokenizer, TEXTS)


@functools.cache
def trimmed(kind: str, room: int | None = None) -> LoadedModel:
    """With the pieces of the texts; or with so many on top of the least."""
    size = None if room is None else least(kind) + room
    return trim_vocabulary(parent(kind), counted(kind), size)


@functools.cache
def least(kind: str) -> int:
    with pytest.raises(UserError) as refused:
        trim_vocabulary(parent(kind), counted(kind), 1)
    return int(refused.value.hint.split()[1])


def answers(loaded: LoadedModel, texts: list[str]) -> list[dict[str, torch.Tensor]]:
    """Everything that is answered to each text, and to all of them padded."""
    found = []
    loaded.tokenizer.padding_side = "right"
    for batch in (*texts, texts):
        if loaded.tokenizer.pad_token is None and batch is texts:
            continue
        inputs = loaded.tokenizer(batch, return_tensors="pt", padding=batch is texts)
        if loaded.model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        with torch.no_grad():
            output = loaded.model(**inputs, output_hidden_states=True)
        states = output.get("hidden_states") or output["decoder_hidden_states"]
        found.append({"logits": output["logits"], **{f"state {n}": state for n, state in enumerate(states)}})
    return found


def old_numbers(before: LoadedModel, after: LoadedModel) -> list[int]:
    """The parent's number of every piece, in the order of the new ones."""
    vocab = before.tokenizer.get_vocab()
    return [vocab[piece] for piece, _ in sorted(after.tokenizer.get_vocab().items(), key=lambda entry: entry[1])]


def same_answers(before: LoadedModel, after: LoadedModel, texts: list[str]) -> None:
    old = old_numbers(before, after)
    for expected, found in zip(answers(before, texts), answers(after, texts), strict=True):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            if name != "logits":
                assert torch.equal(value, found[name]), name
                continue
            value = value if value.shape == found[name].shape else value[..., old]
            torch.testing.assert_close(found[name], value, atol=2e-5, rtol=1e-5)


def tokens(loaded: LoadedModel, text: str) -> list[str]:
    return loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer(text)["input_ids"])  # type: ignore[return-value]


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
    parts = "merges" in Pieces(parent(kind).tokenizer).model  # a piece may not come alone
    assert parts or found == min(least(kind) + room, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_frequent_pieces_come_first(kind):
    stay = set(trimmed(kind, 0).tokenizer.get_vocab())
    more = set(trimmed(kind, 25).tokenizer.get_vocab()) - stay
    counts, pieces = counted(kind), Pieces(parent(kind).tokenizer)
    dropped = [piece for piece in counts if piece not in more | stay]
    by_choice = [p for p in more if counts[p]]
    assert by_choice
    if pieces.model["type"] != "BPE":
        assert min((counts[p] for p in more), default=0) >= max((counts[p] for p in dropped), default=0)
    merged = {pieces.names[n] for piece in by_choice for n in pieces.parts(pieces.numbers[piece])}
    assert more <= merged | set(by_choice) | {pieces.names[n] for n in pieces.characters}


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
        checks.append(folder_check(after, wanted(after.model, after.family), params, tmp_path / kind))
        write_model(after, tmp_path / kind)
    for kind, proof in zip(KINDS, check_folders(checks), strict=True):
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


def test_counting():
    tokenizer = bert()[0]
    counts = piece_counts(tokenizer, iter(["the film the film", "the plot"]), ["film"])
    assert counts == {"the": 3, "film": 3, "plot": 1}
    assert piece_counts(tokenizer, ["the " * 300])["the"] == 300  # longer than the tokenizer's 77
    assert piece_counts(tokenizer, []) == {}
    note = vocabulary_note(tokenizer, trimmed("bert", 0).tokenizer, Counter({"the": 3, "a": 1}))
    assert note == VocabularyNote(len(tokenizer), least("bert"), 0.25)
    assert vocabulary_note(tokenizer, tokenizer, {}).covered == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_always_stays(kind):
    tokenizer = parent(kind).tokenizer
    vocab = tokenizer.get_vocab()
    always = needed(tokenizer)
    stays = {piece for piece, number in vocab.items() if number in always}
    assert set(tokenizer.all_special_tokens) <= stays
    assert {str(added) for added in tokenizer.added_tokens_decoder.values()} <= stays
    if kind in BYTES:
        assert set(pre_tokenizers.ByteLevel.alphabet()) <= stays
    elif kind == "llama2":
        assert {f"<0x{byte:02X}>" for byte in range(256)} <= stays
    forms = {piece for character in "aeiou,." for piece in (character, f"##{character}")}
    assert forms & vocab.keys() <= stays
    assert always <= needed(tokenizer, counted(kind))
    assert len(needed(tokenizer, counted(kind))) <= least(kind)


def test_too_small():
    with pytest.raises(UserError, match=f"3 pieces are too few: {least('bert')} are needed") as refused:
        trim_vocabulary(parent("bert"), counted("bert"), 3)
    assert refused.value.field == "shrink.vocabulary"
    assert refused.value.hint.startswith(f"give {least('bert')} or more")
    with pytest.raises(UserError):
        trim_vocabulary(parent("bert"), counted("bert"), least("bert") - 1)


def test_a_large_limit_adds_nothing_that_no_text_has():
    whole = trim_vocabulary(parent("bert"), counted("bert"), 100_000)
    assert whole.tokenizer.get_vocab() == trimmed("bert").tokenizer.get_vocab()
    assert "[unused0]" not in whole.tokenizer.get_vocab()
    pieces = Pieces(parent("bert").tokenizer)
    assert {pieces.names[n] for n in pieces.characters} <= whole.tokenizer.get_vocab().keys()


def test_no_piece_without_what_it_is_merged_from():
    """There are two ways to "abc"; only the one that is taken has to stay."""
    merges = [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c"), ("b", "ca")]
    vocab = {piece: n for n, piece in enumerate(["a", "b", "c", "ab", "bc", "abc", "ca", "bca"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    pieces = Pieces(PreTrainedTokenizerFast(tokenizer_object=backend))
    parts = {piece: {pieces.names[n] for n in pieces.parts(number)} for piece, number in vocab.items()}
    assert parts["abc"] == {"a", "b", "c", "ab", "abc"}
    assert parts["bca"] == parts["ca"] == set()  # no merge leads there
    assert all((piece in made) == (backend.encode(piece).tokens == [piece]) for piece, made in parts.items())


def test_unknown_characters_do_not_become_cheaper():
    """Their price is that of the least likely piece and 10; with a lower one another reading would win."""
    scored = [("zzz", -8.0), ("<unk>", 0.0), *((piece, -9.0) for piece in ("XY", "a", "b", "c"))]
    scored += [("Yabc", -5.0), ("zz", -50.0)]
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram(vocab=scored, unk_id=1)))
    pieces = Pieces(fast)
    counts = piece_counts(fast, ["XYabc", "Yabc"])
    assert counts == {"XY": 1, "a": 1, "b": 1, "c": 1, "Yabc": 1}
    kept = needed(fast, counts) | {pieces.numbers[piece] for piece in counts}
    for dropped, found in [({"zzz"}, ["XY", "a", "b", "c"]), ({"zzz", "zz"}, ["X", "Yabc"])]:
        stay = sorted(kept - {pieces.numbers[piece] for piece in dropped})
        smaller = Tokenizer.from_str(json.dumps(pieces.only({n: at for at, n in enumerate(stay)})))
        assert smaller.encode("XYabc").tokens == found
        assert smaller.encode("?").ids == [0]


@settings(max_examples=50, deadline=None)
@given(
    corpus=st.lists(st.text("abc", min_size=1, max_size=12), min_size=3, max_size=8),
    texts=st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=6),
    kept=st.integers(1, 6),
)
def test_merges_of_kept_pieces_are_complete(corpus, texts, kept):
    """By brute force: few letters, so that pieces overlap in every way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(corpus * 2, trainers.BpeTrainer(vocab_size=40, initial_alphabet=["a", "b", "c"]))
    pieces = Pieces(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    chosen = set(list(pieces.names)[::-1][:kept]) | set(pieces.characters)
    chosen = chosen.union(*(pieces.parts(number) for number in chosen))
    new = {number: at for at, number in enumerate(sorted(chosen))}
    smaller = Tokenizer.from_str(json.dumps(pieces.only(new)))
    for text in (*corpus, *texts, "".join(texts)):
        found = tokenizer.encode(text).tokens
        if {pieces.numbers[piece] for piece in found} <= chosen:
            assert smaller.encode(text).tokens == found
        assert "".join(smaller.encode(text).tokens) == text


def test_suffixes_and_prefixes_of_byte_pairs():
    """CLIP marks the end of a word, others mark what goes on."""
    for options, before in [
        ({"end_of_word_suffix": "</w>"}, pre_tokenizers.Whitespace()),
        ({"continuing_subword_prefix": "##"}, pre_tokenizers.Whitespace()),
    ]:
        tokenizer = Tokenizer(models.BPE(unk_token="?", **options))  # type: ignore[arg-type]
        tokenizer.pre_tokenizer = before  # type: ignore[assignment]
        tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=["?"], **options))  # type: ignore[arg-type]
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
        pieces = Pieces(fast)
        counts = piece_counts(fast, TEXTS[:4])
        chosen = set(needed(fast, counts)) | {pieces.numbers[piece] for piece in counts}
        chosen = chosen.union(*(pieces.parts(number) for number in chosen))
        assert len(chosen) < len(pieces.names)
        smaller = Tokenizer.from_str(json.dumps(pieces.only({n: at for at, n in enumerate(sorted(chosen))})))
        for text in TEXTS[:4]:
            assert smaller.encode(text).tokens == tokenizer.encode(text).tokens


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "camembert"])
def test_positions_begin_behind_the_padding_piece(name):
    """Its number is also the place where positions begin, so nothing before it may go."""
    assert FAMILIES[name].positions_behind_padding
    vocab, merges = byte_pairs("<s>", "nobody writes this", "nor this", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer = transformers.RobertaTokenizer(vocab=vocab, merges=merges)
    ids = {"vocab_size": len(vocab), "pad_token_id": 3, "bos_token_id": 0, "eos_token_id": 4}
    config = AutoConfig.for_model(name, **(SIZE | ids))
    model = AutoModelForSequenceClassification.from_config(config).eval()
    loaded = LoadedModel(model, tokenizer, family_of(config), "", "")
    after = trim_vocabulary(loaded, piece_counts(tokenizer, TEXTS))
    assert after.model.config.pad_token_id == after.tokenizer.pad_token_id == 3
    same_answers(loaded, after, TEXTS[:4])


def test_special_pieces_without_a_row_stay_without():
    """As load_tokenizer allows: a special piece that the tokenizer knows and the model does not."""
    tokenizer, _, ids = classifier()
    tokenizer.add_special_tokens({"extra_special_tokens": ["[NEW]"]})  # type: ignore[arg-type]
    config = AutoConfig.for_model("bert", **(SIZE | ids | {"vocab_size": len(tokenizer) - 1}))
    loaded = LoadedModel(transformers.BertModel(config).eval(), tokenizer, family_of(config), "", "")
    after = trim_vocabulary(loaded, piece_counts(tokenizer, TEXTS))
    assert after.tokenizer.convert_tokens_to_ids("[NEW]") == after.model.config.vocab_size == len(after.tokenizer) - 1


def test_numbers_that_name_no_piece_stay():
    """GPT-2's config names piece 50256 as its end, however few pieces there are."""
    loaded = parent("gpt2")
    config = AutoConfig.for_model("gpt2", **(SIZE | {"vocab_size": len(loaded.tokenizer)}))
    other = LoadedModel(transformers.GPT2Model(config).eval(), loaded.tokenizer, loaded.family, "", "")
    config.eos_token_id = None
    assert trim_vocabulary(other, counted("gpt2")).model.config.bos_token_id == 50256


def test_words_that_must_not_be_written():
    loaded = trim_vocabulary(parent("gpt2"), counted("gpt2"))  # a copy, to be changed
    vocab = loaded.tokenizer.get_vocab()
    settings = cast("Any", loaded.model.generation_config)
    settings.suppress_tokens = [vocab["a"], vocab["Ġthe"]]
    settings.bad_words_ids = [[vocab["a"], vocab["b"]], [vocab["Ġthe"]]]
    found = trim_vocabulary(loaded, Counter())
    now = found.tokenizer.get_vocab()
    assert "Ġthe" not in now
    assert cast("Any", found.model.generation_config).suppress_tokens == [now["a"]]
    assert cast("Any", found.model.generation_config).bad_words_ids == [[now["a"], now["b"]]]


def test_generation_goes_on():
    after = trimmed("llama2", 25)
    ids = after.tokenizer("the film was", return_tensors="pt")["input_ids"]
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 2}
    made = [cast("Any", after.model).generate(ids, use_cache=use, **options) for use in (True, False)]
    assert torch.equal(made[0], made[1])
    assert made[0].max() < len(after.tokenizer)


def test_layers_and_pieces_in_either_order():
    before = parent("roberta")
    one = extract(trim_vocabulary(before, counted("roberta")), (2,))
    other = trim_vocabulary(extract(before, (2,)), counted("roberta"))
    assert one.fingerprint == other.fingerprint
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])


def test_half_precision_stays_half():
    loaded = parent("llama")
    half = extract(loaded, (1, 2))
    cast("Any", half.model).to(torch.bfloat16)
    after = trim_vocabulary(half, counted("llama"), least("llama") + 5, share=True)
    assert {parameter.dtype for parameter in after.model.parameters()} == {torch.bfloat16}


def test_a_class_that_builds_itself_anew_is_saved_as_the_plain_one(tmp_path):
    """BertTokenizer knows one way to split words; a tokenizer with another way would change when it is loaded."""
    loaded = parent("classifier")
    tokenizer = bert()[0]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    changed = LoadedModel(loaded.model, tokenizer, loaded.family, "", "")
    after = trim_vocabulary(changed, counted("classifier"))
    assert type(after.tokenizer).__name__ == PLAIN
    assert after.tokenizer.model_input_names == tokenizer.model_input_names
    assert after.tokenizer.model_max_length == 77
    after.model.save_pretrained(tmp_path)
    after.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS:
        assert again(text).data == after.tokenizer(text).data
        assert again.convert_ids_to_tokens(again(text)["input_ids"]) == tokens(after, text)
    assert tokens(after, "good, film") == tokens(changed, "good, film")


def test_a_tokenizer_that_does_not_come_back_is_refused():
    """A special piece that the settings name and the file lacks is added on loading."""
    tokenizer = bert()[0]
    data = Pieces(tokenizer).data
    data["added_tokens"] = []
    del data["model"]["vocab"]["[MASK]"]
    with pytest.raises(ProofFailed, match="does not load with fewer pieces as it was saved"):
        rebuilt(tokenizer, data, parent("bert").model.config)


def sst2_texts(count: int) -> list[str]:
    path = SHARED / "data" / "sst2" / "train.tsv"
    if not path.exists():
        pytest.skip("needs ../shared/data beside the checkout")
    with path.open(encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row["sentence"] for row, _ in zip(rows, range(count), strict=False)]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gte-small", "minilm", "mpnet", "granite", "t5", "smollm2"])
def test_real_vocabularies(name, tmp_path):
    before, texts = load_as_saved(str(real_weights(name))), sst2_texts(1500)
    counts = piece_counts(before.tokenizer, texts)
    small = trim_vocabulary(before, counts, 2000)
    assert len(small.tokenizer) == small.model.config.vocab_size <= 2000
    assert vocabulary_note(before.tokenizer, small.tokenizer, counts).covered > 0.7
    after = trim_vocabulary(before, counts)
    assert vocabulary_note(before.tokenizer, after.tokenizer, counts).covered == 1
    assert type(after.tokenizer) is type(before.tokenizer)
    assert after.tokenizer.chat_template == before.tokenizer.chat_template
    for text in texts:
        assert tokens(after, text) == tokens(before, text)
    for text in OTHERS:
        same = before.tokenizer.decode(before.tokenizer(text)["input_ids"])
        assert after.tokenizer.decode(after.tokenizer(text)["input_ids"]) == same
        small.tokenizer(text)
    with torch.no_grad():
        for text in texts[:2]:
            one, other = (
                loaded.model(**loaded.tokenizer(text, return_tensors="pt"), output_hidden_states=True)
                for loaded in (before, after)
            )
            assert torch.equal(one.hidden_states[-1], other.hidden_states[-1])
    if name == "gte-small":
        save_model(small, {}, tmp_path / "model")
