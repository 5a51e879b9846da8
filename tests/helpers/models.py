"""Tiny models of four families, each with a tokenizer of its usual type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForTokenClassification,
    set_seed,
)

from helpers.data import labelled_rows
from probescale.models.family import Family

FAMILIES = ("bert", "roberta", "mpnet", "t5")
LAYERS = 4


def _words(corpus: list[str]) -> list[str]:
    """All words of the corpus except one, which stays several tokens.

    Vocabularies are listed, not trained: trainers break ties differently in every process, and the results of tiny
    models would differ from run to run.
    """
    return sorted({word for text in corpus for word in text.replace(",", " ,").split()} - {"unbelievably"})


def _wordpiece(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({letter for text in corpus for letter in text} - {" "})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), "un", "##believ", "##ably", *_words(corpus)]
    numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.decoder = decoders.WordPiece()  # type: ignore[assignment]
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)  # type: ignore[assignment]
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _bpe(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))  # type: ignore[assignment]
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", **names)


def _unigram(corpus: list[str]) -> PreTrainedTokenizerFast:
    special = ["<pad>", "</s>", "<unk>"]
    letters = sorted({letter for text in corpus for letter in text} - {" "})
    longer = ["▁un", "believ", "ably", *(f"▁{word}" for word in _words(corpus))]
    pieces = [(piece, 0.0) for piece in special]
    pieces += [(piece, -8.0) for piece in ["▁", *letters] if piece not in longer]
    pieces += [(piece, -4.0 - 0.01 * number) for number, piece in enumerate(dict.fromkeys(longer))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", extra_ids=0
    )


def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    corpus = [text for text, _ in labelled_rows(200, seed=7)]
    return {"bert": _wordpiece, "roberta": _bpe, "mpnet": _wordpiece, "t5": _unigram}[family](corpus)


def tiny_config(family: str, vocabulary: int, layers: int = LAYERS) -> PreTrainedConfig:
    size: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
    }
    if family == "bert":
        return BertConfig(**size, num_hidden_layers=layers, max_position_embeddings=128, pad_token_id=0)
    if family == "roberta":
        return RobertaConfig(**size, num_hidden_layers=layers, max_position_embeddings=130, pad_token_id=1)
    if family == "mpnet":
        return MPNetConfig(**size, num_hidden_layers=layers, max_position_embeddings=130, pad_token_id=0)
    return T5Config(
        vocab_size=vocabulary, d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=layers,
        relative_attention_num_buckets=8, is_encoder_decoder=False, use_cache=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip


def tiny_model(family: str, layers: int = LAYERS) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A classifier with random weights, larger than usual so that layers differ visibly."""
    classes = {
        "bert": BertForSequenceClassification,
        "roberta": RobertaForSequenceClassification,
        "mpnet": MPNetForSequenceClassification,
        "t5": T5ForTokenClassification,
    }
    tokenizer = tiny_tokenizer(family)
    set_seed(1)
    model = classes[family](tiny_config(family, len(tokenizer), layers))  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and family != "t5":
                parameter.mul_(4)
            if "relative_attention_bias" in name:
                parameter.normal_(0, 2)
    return model.eval(), tokenizer


@contextmanager
def layers_skipped(model: PreTrainedModel, family: Family, kept: tuple[int, ...]) -> Iterator[None]:
    """Skip layers of the original: its dropped layers return their input. An independent reference for cuts."""

    def skip(_module, args, output):
        return (args[0], *output[1:]) if isinstance(output, tuple) else args[0]

    handles = [block.register_forward_hook(skip) for i, block in enumerate(family.layers(model), 1) if i not in kept]
    yield
    for handle in handles:
        handle.remove()
