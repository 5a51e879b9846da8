"""Twins: tiny models with the architecture and settings of a given one and random weights, for quick checks."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from probescale.config import Head
from probescale.models.family import Family
from probescale.models.heads import stock_class_name
from probescale.models.layer_config import per_layer_settings

LAYERS = 4
VOCABULARY = 64
# Small values for all names that configs give to sizes.
_SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": LAYERS,
    "n_embd": 32, "n_head": 4, "n_layer": LAYERS, "n_inner": 64, "n_positions": 64, "embedding_size": 16, "ffn_dim": 64,
    "word_embed_proj_dim": 16, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "num_layers": LAYERS,
    "num_decoder_layers": LAYERS, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY, "local_attention": 4,
    "max_position_embeddings": 64, "sliding_window": 4, "pooler_hidden_size": 32, "query_pre_attn_scalar": 8,
    "original_max_position_embeddings": 64, "window_size": 4, "rotary_dim": 4, "d_head": 8, "d_inner": 64,
}  # fmt: skip
_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[EOS]")


def build_twin_config(config: PreTrainedConfig, family: Family, head: Head = "none") -> PreTrainedConfig:
    """The same settings with four narrow layers, which cycle through every layer type of the original."""
    values: dict[str, Any] = config.to_dict()
    for name in per_layer_settings(config, family):
        kinds = list(dict.fromkeys(values[name]))
        values[name] = [kinds[i % len(kinds)] for i in range(LAYERS)]
    values |= {name: small for name, small in _SMALL.items() if values.get(name) is not None}
    values |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 4, "cls_token_id": 1, "sep_token_id": 2}
    if values.get("decoder_start_token_id") is not None or family.decoder:
        values["decoder_start_token_id"] = 0
    labels = {0: "0"} if head == "regression" else {0: "0", 1: "1", 2: "2"}
    values |= {"id2label": labels, "label2id": {name: number for number, name in labels.items()}}
    values |= {"problem_type": "regression"} if head == "regression" else {}
    return type(config).from_dict({name: value for name, value in values.items() if name != "dtype"})


def build_twin(config: PreTrainedConfig, family: Family, head: Head = "none", seed: int = 0) -> PreTrainedModel | None:
    """A twin with this head, with weights so large that every layer matters; None if no stock class has the head."""
    name = stock_class_name(family, config, head)
    if name is None:
        return None
    transformers.set_seed(seed)
    model = getattr(transformers, name)(build_twin_config(config, family, head)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))  # so that norms differ between layers
    return model


def build_twin_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each of a twin's embeddings."""
    words = {word: number for number, word in enumerate([*_TOKENS, *(f"w{i}" for i in range(VOCABULARY - 5))])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))  # type: ignore[call-arg]
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[EOS]", **names)
