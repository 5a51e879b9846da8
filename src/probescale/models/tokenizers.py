"""Load a model's tokenizer, and check that it belongs to the model."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from probescale.errors import UserError, first_line

# At least one is required: without any, transformers silently builds an empty tokenizer.
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
ODD_TEXT = "a word, 1 \u4e00 \U0001f600 \u0378"  # the last character is one that no vocabulary has


def gguf_options(folder: Path, *, field: str) -> tuple[Path, dict[str, str]]:
    """The folder for from_pretrained, and its options; a GGUF file is an option."""
    if folder.suffix != ".gguf":
        return folder, {}
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"{folder.name} needs the gguf package", field=field, hint='pip install "probescale[gguf]"')
    return folder.parent, {"gguf_file": folder.name}


def find_tokenizer_file(folder: Path) -> Path | None:
    """A file that a tokenizer can be loaded from, if there is one; a GGUF file holds its own."""
    candidates = [folder] if folder.suffix == ".gguf" else [folder / name for name in _FILES]
    return next((path for path in candidates if path.is_file()), None)


def load_tokenizer(
    folder: Path, config: PreTrainedConfig, *, padded: bool = True, field: str
) -> PreTrainedTokenizerBase:
    """The folder's fast tokenizer, checked to have an embedding for every token, and a padding token if `padded`."""
    place, options = gguf_options(folder, field=field)
    if not find_tokenizer_file(folder):
        raise _unusable(folder, f"it has none of {', '.join(_FILES)}", field)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # whatever the library raises for a broken file
        raise _unusable(folder, str(error).split("\n")[0], field) from error
    if not tokenizer.is_fast:
        raise _unusable(folder, "it is a slow tokenizer, which cannot align words", field)
    try:
        _check_settings(tokenizer)
        _check_ids(tokenizer, config.vocab_size)
        if padded:
            _check_padding(tokenizer, config)
    except ValueError as error:
        raise _unusable(folder, str(error), field) from error
    return tokenizer


def _check_settings(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse names of model inputs and a longest input that no model has."""
    names, longest = tokenizer.model_input_names, tokenizer.model_max_length
    if not isinstance(names, (list, tuple)) or "input_ids" not in names[:1]:
        raise ValueError(f"its model_input_names are {names!r}, and the first one must be input_ids")
    shortest = tokenizer.num_special_tokens_to_add(pair=False) + 1
    if isinstance(longest, bool) or not isinstance(longest, (int, float)) or not longest >= shortest:
        raise ValueError(f"its model_max_length is {longest!r}, and a text needs {shortest} tokens")


def _check_ids(tokenizer: PreTrainedTokenizerBase, embeddings: int) -> None:
    """Make sure that every token of any text has an embedding."""
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    beyond = {token: number for token, number in tokenizer.get_vocab().items() if number >= embeddings}
    if bad := [token for token, number in beyond.items() if number not in special]:
        raise ValueError(f'its token "{bad[0]}" has the id {beyond[bad[0]]}, and the model {embeddings} embeddings')
    if beyond:
        # Special tokens that the model does not have: where a text contains their names, they are ordinary letters.
        tokenizer.split_special_tokens = True
    for pair in (None, ODD_TEXT):
        try:
            ids = tokenizer(ODD_TEXT, pair, verbose=False)["input_ids"]
        except Exception as error:  # the library has no common class for what is wrong with a vocabulary
            raise ValueError(f"it cannot read a text: {first_line(error)}") from error
        if max(ids, default=0) >= embeddings:
            raise ValueError(f"it adds the id {max(ids)} to texts, and the model has {embeddings} embeddings")


def _check_padding(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Make sure that the tokenizer pads on the right, with the model's padding token."""
    if tokenizer.pad_token_id is None:
        # Decoders are trained without padding. As usual the end token is used; its states are masked.
        if tokenizer.eos_token is None or tokenizer.cls_token is not None:
            raise ValueError("it has no padding token")
        tokenizer.pad_token = tokenizer.eos_token
    if "attention_mask" not in tokenizer.model_input_names:
        raise ValueError("it gives no attention_mask, which says where the padding is")
    if config.pad_token_id is not None and tokenizer.pad_token_id != config.pad_token_id:
        raise ValueError(f"it pads with {tokenizer.pad_token_id}, the model with {config.pad_token_id}")
    if tokenizer.pad_token_id >= config.vocab_size:
        raise ValueError(f"it pads with {tokenizer.pad_token_id}, and the model has {config.vocab_size} embeddings")
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
