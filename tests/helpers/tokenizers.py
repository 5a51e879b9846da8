"""Tiny models with every kind of tokenizer, and comparisons before and after trimming their vocabularies."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, set_seed

from helpers.data import labelled_rows
from probescale.errors import UserError
from probescale.models.families import find_family
from probescale.models.loading import LoadedModel
from probescale.models.shrink.vocabulary import count_tokens, trim_vocabulary

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
    """A vocabulary of special tokens, unused tokens and words, in this order."""
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
    """Its only special token comes last; others are added behind the vocabulary."""
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
    """Special tokens after all others, and two post-processors, as in Llama 3."""
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
    """All merges that make a token, ranked by the token, and bytes for what has no token."""
    scored = unigrams("<unk>", "<s>", "</s>")
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {token: n for n, token in enumerate([*(p for p, _ in scored[:3]), *fallback, *(p for p, _ in scored[3:])])}
    ordinary = [p for p in vocab if p not in fallback and len(p) > 1 and p not in ("<unk>", "<s>", "</s>")]
    splits = [(token[:at], token[at:]) for token in ordinary for at in range(1, len(token))]
    merges = [(left, right) for left, right in splits if left in vocab and right in vocab]
    tokenizer = transformers.LlamaTokenizer(vocab=vocab, merges=merges, pad_token="</s>", add_bos_token=True)
    return tokenizer, "LlamaForCausalLM", {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}


def t5() -> Made:
    """The model has more embeddings than the tokenizer has tokens."""
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
    return LoadedModel(model, tokenizer, find_family(model.config), kind, "")


@functools.cache
def counted(kind: str) -> Counter[str]:
    return count_tokens(parent(kind).tokenizer, TEXTS)


@functools.cache
def trimmed(kind: str, room: int | None = None) -> LoadedModel:
    """With the tokens of the texts; or with so many more than the required ones."""
    size = None if room is None else least(kind) + room
    return trim_vocabulary(parent(kind), counted(kind), size)


@functools.cache
def least(kind: str) -> int:
    with pytest.raises(UserError) as refused:
        trim_vocabulary(parent(kind), counted(kind), 1)
    return int(refused.value.hint.split()[1])


@dataclass(frozen=True)
class VocabularySummary:
    """The effect of trimming a vocabulary."""

    before: int  # tokens
    after: int
    covered: float  # share of the counted tokens that are still in the vocabulary


def summarise_vocabulary(
    before: PreTrainedTokenizerBase, after: PreTrainedTokenizerBase, counts: Mapping[str, int]
) -> VocabularySummary:
    kept = after.get_vocab()
    covered = sum(count for token, count in counts.items() if token in kept)
    return VocabularySummary(len(before), len(after), covered / max(sum(counts.values()), 1))


def answers(loaded: LoadedModel, texts: list[str]) -> list[dict[str, torch.Tensor]]:
    """All outputs for each text, and for all of them as one padded batch."""
    outputs = []
    for batch in (*texts, texts):
        if loaded.tokenizer.pad_token is None and batch is texts:
            continue
        inputs = loaded.tokenizer(batch, return_tensors="pt", padding=batch is texts, padding_side="right")
        if loaded.model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        with torch.no_grad():
            output = loaded.model(**inputs, output_hidden_states=True)
        states = output.get("hidden_states") or output["decoder_hidden_states"]
        outputs.append({"logits": output["logits"], **{f"state {n}": state for n, state in enumerate(states)}})
    return outputs


def old_numbers(before: LoadedModel, after: LoadedModel) -> list[int]:
    """The parent's id of every token, in the order of the new ids."""
    vocab = before.tokenizer.get_vocab()
    return [vocab[token] for token, _ in sorted(after.tokenizer.get_vocab().items(), key=lambda entry: entry[1])]


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
