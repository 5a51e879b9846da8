"""Special cases of trimming a vocabulary: required tokens, refusals, settings that hold token ids, real tokenizers."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import Any, cast

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from helpers.real import real_data, real_weights
from helpers.tokenizers import (
    BYTES,
    CORPUS,
    KINDS,
    OTHERS,
    SIZE,
    TEXTS,
    VocabularySummary,
    bert,
    byte_pairs,
    classifier,
    counted,
    least,
    parent,
    same_answers,
    summarise_vocabulary,
    tokens,
    trimmed,
)
from probescale.errors import ProofFailed, UserError
from probescale.models.families import FAMILIES, find_family
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.saving import save_model
from probescale.models.shrink.tokenizer import PLAIN_CLASS, TokenizerVocabulary, rebuild_tokenizer
from probescale.models.shrink.vocabulary import count_tokens, required_tokens, trim_vocabulary
from probescale.models.surgery import keep_layers


def test_counting():
    tokenizer = bert()[0]
    counts = count_tokens(tokenizer, iter(["the film the film", "the plot"]), ["film"])
    assert counts == {"the": 3, "film": 3, "plot": 1}
    assert count_tokens(tokenizer, ["the " * 300])["the"] == 300  # longer than the tokenizer's 77
    assert count_tokens(tokenizer, []) == {}
    summary = summarise_vocabulary(tokenizer, trimmed("bert", 0).tokenizer, Counter({"the": 3, "a": 1}))
    assert summary == VocabularySummary(len(tokenizer), least("bert"), 0.25)
    assert summarise_vocabulary(tokenizer, tokenizer, {}).covered == 0


@pytest.mark.parametrize("kind", KINDS)
def test_required_tokens(kind):
    tokenizer = parent(kind).tokenizer
    vocab = tokenizer.get_vocab()
    required = required_tokens(tokenizer)
    kept = {token for token, number in vocab.items() if number in required}
    assert set(tokenizer.all_special_tokens) <= kept
    assert {str(added) for added in tokenizer.added_tokens_decoder.values()} <= kept
    if kind in BYTES:
        assert set(pre_tokenizers.ByteLevel.alphabet()) <= kept
    elif kind == "llama2":
        assert {f"<0x{byte:02X}>" for byte in range(256)} <= kept
    forms = {token for character in "aeiou,." for token in (character, f"##{character}")}
    assert forms & vocab.keys() <= kept
    assert required <= required_tokens(tokenizer, counted(kind))
    assert len(required_tokens(tokenizer, counted(kind))) <= least(kind)


def test_too_small():
    with pytest.raises(UserError, match=f"3 tokens are too few: {least('bert')} are needed") as refused:
        trim_vocabulary(parent("bert"), counted("bert"), 3)
    assert refused.value.field == "shrink.vocabulary"
    assert refused.value.hint.startswith(f"give {least('bert')} or more")
    with pytest.raises(UserError):
        trim_vocabulary(parent("bert"), counted("bert"), least("bert") - 1)


def test_a_large_limit_keeps_all_but_placeholders():
    large = trim_vocabulary(parent("bert"), counted("bert"), 100_000)
    every = parent("bert").tokenizer.get_vocab().keys()
    assert "[unused0]" in every
    assert large.tokenizer.get_vocab().keys() == {token for token in every if not token.startswith("[unused")}
    vocabulary = TokenizerVocabulary(parent("bert").tokenizer)
    assert {vocabulary.tokens[n] for n in vocabulary.characters} <= large.tokenizer.get_vocab().keys()


def test_a_token_is_kept_with_those_it_is_merged_from():
    """There are two ways to merge "abc"; only the tokens of the one that BPE takes are needed."""
    merges = [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c"), ("b", "ca")]
    vocab = {token: n for n, token in enumerate(["a", "b", "c", "ab", "bc", "abc", "ca", "bca"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    vocabulary = TokenizerVocabulary(PreTrainedTokenizerFast(tokenizer_object=backend))
    parts = {token: {vocabulary.tokens[n] for n in vocabulary.merge_parts(number)} for token, number in vocab.items()}
    assert parts["abc"] == {"a", "b", "c", "ab", "abc"}
    assert parts["bca"] == parts["ca"] == set()  # no merge builds them
    assert all((token in steps) == (backend.encode(token).tokens == [token]) for token, steps in parts.items())


def test_unknown_characters_keep_their_score():
    """It is the score of the least likely token minus 10; with a better one another segmentation would win."""
    scored = [("zzz", -8.0), ("<unk>", 0.0), *((token, -9.0) for token in ("XY", "a", "b", "c"))]
    scored += [("Yabc", -5.0), ("zz", -50.0)]
    fast = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram(vocab=scored, unk_id=1)))
    vocabulary = TokenizerVocabulary(fast)
    counts = count_tokens(fast, ["XYabc", "Yabc"])
    assert counts == {"XY": 1, "a": 1, "b": 1, "c": 1, "Yabc": 1}
    kept = required_tokens(fast, counts) | {vocabulary.ids[token] for token in counts}
    for dropped, expected in [({"zzz"}, ["XY", "a", "b", "c"]), ({"zzz", "zz"}, ["X", "Yabc"])]:
        stay = sorted(kept - {vocabulary.ids[token] for token in dropped})
        smaller = Tokenizer.from_str(json.dumps(vocabulary.restrict({n: at for at, n in enumerate(stay)})))
        assert smaller.encode("XYabc").tokens == expected
        assert smaller.encode("?").ids == [0]


@settings(max_examples=50, deadline=None)
@given(
    corpus=st.lists(st.text("abc", min_size=1, max_size=12), min_size=3, max_size=8),
    texts=st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=6),
    kept=st.integers(1, 6),
)
def test_merges_of_kept_tokens_are_complete(corpus, texts, kept):
    """By brute force: few letters, so that tokens overlap in every way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(corpus * 2, trainers.BpeTrainer(vocab_size=40, initial_alphabet=["a", "b", "c"]))
    vocabulary = TokenizerVocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    chosen = set(list(vocabulary.tokens)[::-1][:kept]) | set(vocabulary.characters)
    chosen = chosen.union(*(vocabulary.merge_parts(number) for number in chosen))
    new = {number: at for at, number in enumerate(sorted(chosen))}
    smaller = Tokenizer.from_str(json.dumps(vocabulary.restrict(new)))
    for text in (*corpus, *texts, "".join(texts)):
        expected = tokenizer.encode(text).tokens
        if {vocabulary.ids[token] for token in expected} <= chosen:
            assert smaller.encode(text).tokens == expected
        assert "".join(smaller.encode(text).tokens) == text


def test_suffixes_and_prefixes_of_byte_pairs():
    """CLIP marks the end of a word, others mark its continuation."""
    for options, before in [
        ({"end_of_word_suffix": "</w>"}, pre_tokenizers.Whitespace()),
        ({"continuing_subword_prefix": "##"}, pre_tokenizers.Whitespace()),
    ]:
        tokenizer = Tokenizer(models.BPE(unk_token="?", **options))  # type: ignore[arg-type]
        tokenizer.pre_tokenizer = before  # type: ignore[assignment]
        tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=["?"], **options))  # type: ignore[arg-type]
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
        vocabulary = TokenizerVocabulary(fast)
        counts = count_tokens(fast, TEXTS[:4])
        chosen = set(required_tokens(fast, counts)) | {vocabulary.ids[token] for token in counts}
        chosen = chosen.union(*(vocabulary.merge_parts(number) for number in chosen))
        assert len(chosen) < len(vocabulary.tokens)
        smaller = Tokenizer.from_str(json.dumps(vocabulary.restrict({n: at for at, n in enumerate(sorted(chosen))})))
        for text in TEXTS[:4]:
            assert smaller.encode(text).tokens == tokenizer.encode(text).tokens


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "camembert"])
def test_positions_begin_after_the_padding_token(name):
    """Its id is also the offset of positions, so no token before it may be dropped."""
    assert FAMILIES[name].positions_after_padding
    vocab, merges = byte_pairs("<s>", "nobody writes this", "nor this", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer = transformers.RobertaTokenizer(vocab=vocab, merges=merges)
    ids = {"vocab_size": len(vocab), "pad_token_id": 3, "bos_token_id": 0, "eos_token_id": 4}
    config = AutoConfig.for_model(name, **(SIZE | ids))
    model = AutoModelForSequenceClassification.from_config(config).eval()
    loaded = LoadedModel(model, tokenizer, find_family(config), "", "")
    after = trim_vocabulary(loaded, count_tokens(tokenizer, TEXTS))
    assert after.model.config.pad_token_id == after.tokenizer.pad_token_id == 3
    same_answers(loaded, after, TEXTS[:4])


def test_special_tokens_without_an_embedding_stay_without():
    """load_tokenizer allows a special token that has no embedding in the model."""
    tokenizer, _, ids = classifier()
    tokenizer.add_special_tokens({"extra_special_tokens": ["[NEW]"]})  # type: ignore[arg-type]
    config = AutoConfig.for_model("bert", **(SIZE | ids | {"vocab_size": len(tokenizer) - 1}))
    loaded = LoadedModel(transformers.BertModel(config).eval(), tokenizer, find_family(config), "", "")
    after = trim_vocabulary(loaded, count_tokens(tokenizer, TEXTS))
    assert after.tokenizer.convert_tokens_to_ids("[NEW]") == after.model.config.vocab_size == len(after.tokenizer) - 1


def test_ids_without_a_token_stay():
    """GPT-2's config has 50256 as its end token, however small the vocabulary."""
    loaded = parent("gpt2")
    config = AutoConfig.for_model("gpt2", **(SIZE | {"vocab_size": len(loaded.tokenizer)}))
    other = LoadedModel(transformers.GPT2Model(config).eval(), loaded.tokenizer, loaded.family, "", "")
    config.eos_token_id = None
    assert trim_vocabulary(other, counted("gpt2")).model.config.bos_token_id == 50256


def test_suppressed_tokens_and_bad_words_are_renumbered():
    loaded = trim_vocabulary(parent("gpt2"), counted("gpt2"))  # a copy, to be changed
    vocab = loaded.tokenizer.get_vocab()
    settings = cast("Any", loaded.model.generation_config)
    settings.suppress_tokens = [vocab["a"], vocab["Ġthe"]]
    settings.bad_words_ids = [[vocab["a"], vocab["b"]], [vocab["Ġthe"]]]
    trimmed_again = trim_vocabulary(loaded, Counter())
    now = trimmed_again.tokenizer.get_vocab()
    assert "Ġthe" not in now
    assert cast("Any", trimmed_again.model.generation_config).suppress_tokens == [now["a"]]
    assert cast("Any", trimmed_again.model.generation_config).bad_words_ids == [[now["a"], now["b"]]]


def test_generation_still_works():
    after = trimmed("llama2", 25)
    ids = after.tokenizer("the film was", return_tensors="pt")["input_ids"]
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 2}
    generated = [cast("Any", after.model).generate(ids, use_cache=use, **options) for use in (True, False)]
    assert torch.equal(generated[0], generated[1])
    assert generated[0].max() < len(after.tokenizer)


def test_layers_and_tokens_are_cut_in_either_order():
    before = parent("roberta")
    first = keep_layers(trim_vocabulary(before, counted("roberta")), (2,))
    other = trim_vocabulary(keep_layers(before, (2,)), counted("roberta"))
    assert first.fingerprint == other.fingerprint
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])


def test_half_precision_stays_half():
    loaded = parent("llama")
    half = keep_layers(loaded, (1, 2))
    cast("Any", half.model).to(torch.bfloat16)
    after = trim_vocabulary(half, counted("llama"), least("llama") + 5, share=True)
    assert {parameter.dtype for parameter in after.model.parameters()} == {torch.bfloat16}


def test_a_class_that_rebuilds_its_parts_is_saved_as_the_plain_class(tmp_path):
    """BertTokenizer always sets its own pre-tokenizer; a tokenizer with another one would change when it is loaded."""
    loaded = parent("classifier")
    tokenizer = bert()[0]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    changed = LoadedModel(loaded.model, tokenizer, loaded.family, "", "")
    after = trim_vocabulary(changed, counted("classifier"))
    assert type(after.tokenizer).__name__ == PLAIN_CLASS
    assert after.tokenizer.model_input_names == tokenizer.model_input_names
    assert after.tokenizer.model_max_length == 77
    after.model.save_pretrained(tmp_path)
    after.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS:
        assert again(text).data == after.tokenizer(text).data
        assert again.convert_ids_to_tokens(again(text)["input_ids"]) == tokens(after, text)
    assert tokens(after, "good, film") == tokens(changed, "good, film")


def test_a_tokenizer_that_changes_on_loading_is_refused():
    """A special token that the settings name but the file lacks is added on loading."""
    tokenizer = bert()[0]
    data = TokenizerVocabulary(tokenizer).data
    data["added_tokens"] = []
    del data["model"]["vocab"]["[MASK]"]
    with pytest.raises(ProofFailed, match="with fewer tokens does not load as it was saved"):
        rebuild_tokenizer(tokenizer, data, parent("bert").model.config)


def sst2_texts(count: int) -> list[str]:
    with real_data("sst2/train.tsv").open(encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row["sentence"] for row, _ in zip(rows, range(count), strict=False)]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gte-small", "minilm", "mpnet", "granite", "t5", "smollm2"])
def test_real_vocabularies(name, tmp_path):
    before, texts = load_as_saved(str(real_weights(name))), sst2_texts(1500)
    counts = count_tokens(before.tokenizer, texts)
    small = trim_vocabulary(before, counts, 2000)
    assert len(small.tokenizer) == small.model.config.vocab_size <= 2000
    assert summarise_vocabulary(before.tokenizer, small.tokenizer, counts).covered > 0.7
    after = trim_vocabulary(before, counts)
    assert summarise_vocabulary(before.tokenizer, after.tokenizer, counts).covered == 1
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
