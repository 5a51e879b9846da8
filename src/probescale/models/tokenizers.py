"""Load a model's tokenizer, and check that it belongs to the model."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from probescale.errors import UserError

# At least one is required: without any, transformers silently builds an empty tokenizer.
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")


def gguf_options(folder: Path, *, field: str) -> tuple[Path, dict[str, str]]:
    """The folder for from_pretrained, and its options; a GGUF file is an option."""
    if folder.suffix != ".gguf":
        return folder, {}
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"{folder.name} needs the gguf package", field=field, hint='pip install "probescale[gguf]"')
    return folder.parent, {"gguf_file": folder.name}


def load_tokenizer(
    folder: Path, config: PreTrainedConfig, *, padded: bool = True, field: str
) -> PreTrainedTokenizerBase:
    """The folder's fast tokenizer, checked to have an embedding for every token, and a padding token if `padded`."""
    place, options = gguf_options(folder, field=field)
    if not options and not any((folder / name).is_file() for name in _FILES):
        raise _unusable(folder, f"it has none of {', '.join(_FILES)}", field)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # whatever the library raises for a broken file
        raise _unusable(folder, str(error).split("\n")[0], field) from error
    if not tokenizer.is_fast:
        raise _unusable(folder, "it is a slow tokenizer, which cannot align words", field)
    if padded:
        _check_padding(tokenizer, config, folder, field=field)
    beyond = [token for number, token in tokenizer.added_tokens_decoder.items() if number >= config.vocab_size]
    tokens = len(tokenizer) - len([token for token in beyond if token.special])  # special tokens occur in no text
    if tokens > config.vocab_size:
        raise _unusable(folder, f"it has {len(tokenizer)} tokens, the model {config.vocab_size} embeddings", field)
    return tokenizer


def _check_padding(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, folder: Path, *, field: str) -> None:
    """Make sure that the tokenizer pads on the right, with the model's padding token."""
    if tokenizer.pad_token_id is None:
        # Decoders are trained without padding. As usual the end token is used; its states are masked.
        if tokenizer.eos_token is None or tokenizer.cls_token is not None:
            raise _unusable(folder, "it has no padding token", field)
        tokenizer.pad_token = tokenizer.eos_token
    if config.pad_token_id is not None and tokenizer.pad_token_id != config.pad_token_id:
        raise _unusable(folder, f"it pads with {tokenizer.pad_token_id}, the model with {config.pad_token_id}", field)
    tokenizer.padding_side = "right"  # positions and pooled states count from the left


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 of the tokenizer in memory, without the truncation and padding of the last call."""
    return hashlib.sha256(get_backend(reset_tokenizer(tokenizer)).to_str().encode()).hexdigest()


def reset_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The same tokenizer without truncation and padding of earlier calls, which would be saved with it."""
    get_backend(tokenizer).no_truncation()
    get_backend(tokenizer).no_padding()
    return tokenizer


def get_backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The tokenizer of the `tokenizers` library behind a fast tokenizer."""
    return cast("PreTrainedTokenizerFast", tokenizer).backend_tokenizer


def _unusable(folder: Path, reason: str, field: str) -> UserError:
    return UserError(
        f"{folder} has no usable tokenizer: {reason}", field=field, hint="save the model's own tokenizer in it"
    )
