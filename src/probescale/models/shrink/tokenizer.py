"""Tokenizers with fewer tokens, built by editing tokenizer.json."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from probescale.errors import ProofFailed
from probescale.models.loading import quiet_transformers
from probescale.models.tokenizers import get_backend

PLAIN_CLASS = "TokenizersBackend"  # the stock class that uses tokenizer.json unchanged
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
BASIC_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) | {"▁"}  # printable ASCII; SentencePiece's space


class TokenizerVocabulary:
    """The vocabulary in a tokenizer's file: token ids, and which tokens other tokens are built from."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.data: dict[str, Any] = json.loads(get_backend(tokenizer).to_str())
        self.model: dict[str, Any] = self.data["model"]
        self.prefix: str = self.model.get("continuing_subword_prefix") or ""
        self.suffix: str = self.model.get("end_of_word_suffix") or ""
        self.byte_level = '"ByteLevel"' in json.dumps([self.data["pre_tokenizer"], self.data["normalizer"]])
        self.byte_fallback = bool(self.model.get("byte_fallback"))

    @cached_property
    def tokens(self) -> dict[int, str]:
        """Id -> token, added tokens included."""
        vocab = self.model["vocab"]
        own = enumerate(token for token, _ in vocab) if isinstance(vocab, list) else ((i, t) for t, i in vocab.items())
        return dict(own) | {added["id"]: added["content"] for added in self.data["added_tokens"]}

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: number for number, token in self.tokens.items()}

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of the unknown token, if there is one."""
        if "unk_id" in self.model:
            return self.model["unk_id"]
        return self.ids.get(self.model.get("unk_token") or "")

    @cached_property
    def characters(self) -> dict[int, str]:
        """Id -> character, of tokens that are one character, at the beginning of a word or inside ("##x")."""
        bare = {number: token.removeprefix(self.prefix) for number, token in self.tokens.items()}
        bare = {number: token.removesuffix(self.suffix) for number, token in bare.items()}
        return {number: token for number, token in bare.items() if len(token) == 1}

    def required_ids(self, seen: Collection[str] = ()) -> set[int]:
        """Ids of the tokens without which some text, or the characters in `seen`, could not be encoded."""
        kept = {added["id"] for added in self.data["added_tokens"]}
        kept |= {place[at] for place, at in _ids_outside_vocabulary(self.data)}
        kept |= {self.unknown_id} if self.unknown_id is not None else set()
        if self.byte_fallback:
            kept |= {number for number, token in self.tokens.items() if BYTE_TOKEN.fullmatch(token)}
        if self.model["type"] == "Unigram":  # the score of unknown characters derives from the least likely token
            kept.add(min(range(len(self.model["vocab"])), key=lambda number: self.model["vocab"][number][1]))
        if self.byte_level or (self.unknown_id is None and not self.byte_fallback):
            return kept | self.characters.keys()  # characters stand for bytes, or there is no unknown token
        needed = BASIC_CHARACTERS.union(seen)
        return kept | {number for number, character in self.characters.items() if character in needed}

    @cached_property
    def merge_parts(self) -> Callable[[int], set[int]]:
        """A function from a token id to the ids that BPE merges it from, step by step; without them it never occurs."""
        if self.model["type"] != "BPE":
            return lambda _id: set()
        ranks = {(left, right): rank for rank, (left, right) in enumerate(self.model["merges"])}
        return lambda number: {self.ids[token] for token in self._merge_steps(self.tokens[number], ranks)}

    def _merge_steps(self, token: str, ranks: Mapping[tuple[str, str], int]) -> set[str]:
        """All symbols on the way from characters to this token.

        They do not depend on the rest of the word: where the token is in the result, no merge crossed its edges.
        """
        symbols = self._symbols(token)
        seen = set(symbols)
        while steps := [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]:
            _, at = min(steps)  # the merge of lowest rank; the leftmost, where it fits twice
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1].removeprefix(self.prefix)]
            seen.add(symbols[at])
        return seen & self.ids.keys() if symbols == [token] else set()  # else no merge builds it

    def _symbols(self, token: str) -> list[str]:
        """The characters of a token as BPE symbols."""
        inside = token.startswith(self.prefix)
        bare = token.removeprefix(self.prefix).removesuffix(self.suffix)
        symbols = [(self.prefix if at or inside else "") + character for at, character in enumerate(bare)]
        if symbols and token.endswith(self.suffix):
            symbols[-1] += self.suffix
        return symbols

    def restrict(self, new_ids: Mapping[int, int]) -> dict[str, Any]:
        """The contents of tokenizer.json with only some tokens; `new_ids`: old id -> new id."""
        data = copy.deepcopy({name: value for name, value in self.data.items() if name != "model"})
        model, vocab = dict(self.model), self.model["vocab"]
        data["model"] = model
        if isinstance(vocab, list):
            model["vocab"] = [entry for number, entry in enumerate(vocab) if number in new_ids]
            model["unk_id"] = new_ids.get(model["unk_id"])
        else:
            model["vocab"] = {token: new_ids[number] for token, number in vocab.items() if number in new_ids}
        if "merges" in model:
            model["merges"] = [
                [left, right] for left, right in model["merges"] if self._is_mergeable(left, right, model["vocab"])
            ]
        for added in data["added_tokens"]:
            added["id"] = new_ids[added["id"]]
        for place, at in _ids_outside_vocabulary(data):
            place[at] = new_ids[place[at]]
        return data

    def _is_mergeable(self, left: str, right: str, vocab: Collection[str]) -> bool:
        return left in vocab and right in vocab and left + right.removeprefix(self.prefix) in vocab


def _ids_outside_vocabulary(data: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Places outside the vocabulary that hold token ids: a list or dict, and the index or key in it."""
    if data.get("padding"):
        yield data["padding"], "pad_id"
    processor = data.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        for end in ("sep", "cls"):
            if end in step:
                yield step[end], 1
        for special in (step.get("special_tokens") or {}).values():
            for at in range(len(special["ids"])):
                yield special["ids"], at


def rebuild_tokenizer(
    tokenizer: PreTrainedTokenizerBase, data: dict[str, Any], config: PreTrainedConfig
) -> PreTrainedTokenizerBase:
    """A tokenizer with new contents and the same settings, as stock transformers loads it from a folder."""
    expected = Tokenizer.from_str(json.dumps(data)).to_str()
    with tempfile.TemporaryDirectory() as name, quiet_transformers():
        folder = Path(name)
        config.to_json_file(folder / "config.json")  # the class of the tokenizer depends on it
        tokenizer.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(expected, encoding="utf-8")
        rebuilt = _load(folder)
        if get_backend(rebuilt).to_str() != expected:  # some classes rebuild parts of it, differently
            settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            settings |= {"tokenizer_class": PLAIN_CLASS, "model_input_names": tokenizer.model_input_names}
            (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
            rebuilt = _load(folder)
        if get_backend(rebuilt).to_str() != expected:
            raise ProofFailed(f"{type(tokenizer).__name__} with fewer tokens does not load as it was saved")
    rebuilt.name_or_path = tokenizer.name_or_path
    rebuilt.padding_side, rebuilt.truncation_side = tokenizer.padding_side, tokenizer.truncation_side
    return rebuilt


def _load(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
