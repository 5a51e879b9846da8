"""A model's tokenizer, and whether it is really that model's."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from probescale.errors import UserError

# One of these has to be there: without any, transformers invents an empty tokenizer and says nothing.
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")


def load_tokenizer(folder: Path, config: PreTrainedConfig, *, field: str) -> PreTrainedTokenizerBase:
    """The folder's fast tokenizer, if it can pad and knows no piece that the model has no embedding for."""
    if not any((folder / name).is_file() for name in _FILES):
        raise _unusable(folder, f"it has none of {', '.join(_FILES)}", field)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever the library makes of a broken file
        raise _unusable(folder, str(error).split("\n")[0], field) from error
    if not tokenizer.is_fast:
        raise _unusable(folder, "it is a slow one, which cannot align words", field)
    if tokenizer.pad_token_id is None:
        raise _unusable(folder, "it has no padding token", field)
    if config.pad_token_id is not None and tokenizer.pad_token_id != config.pad_token_id:
        raise _unusable(folder, f"it pads with {tokenizer.pad_token_id}, the model with {config.pad_token_id}", field)
    if len(tokenizer) > config.vocab_size:
        raise _unusable(folder, f"it has {len(tokenizer)} pieces, the model {config.vocab_size} embeddings", field)
    return tokenizer


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 of the tokenizer as it is in memory, without the length of the last call."""
    return hashlib.sha256(_backend(as_new(tokenizer)).to_str().encode()).hexdigest()


def as_new(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Forget truncation and padding of earlier calls; tokenizer.json would keep them."""
    _backend(tokenizer).no_truncation()
    _backend(tokenizer).no_padding()
    return tokenizer


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    return cast("PreTrainedTokenizerFast", tokenizer).backend_tokenizer


def _unusable(folder: Path, reason: str, field: str) -> UserError:
    return UserError(
        f"{folder} has no usable tokenizer: {reason}", field=field, hint="save the model's own tokenizer beside it"
    )
