"""A tokenizer with fewer pieces, made by editing what it is saved as (tokenizer.json)."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from probescale.errors import ProofFailed
from probescale.models.loading import quiet_transformers

PLAIN = "TokenizersBackend"  # the stock class that takes tokenizer.json as it is
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
BASE = frozenset(map(chr, range(0x20, 0x7F))) | {"▁"}  # printable ASCII, and how SentencePiece writes a blank


class TokenizerVocabulary:
    """What a tokenizer's file says of its pieces: their numbers, and which of them others are spelled with."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.data: dict[str, Any] = json.loads(_backend(tokenizer).to_str())
        self.model: dict[str, Any] = self.data["model"]
        self.prefix: str = self.model.get("continuing_subword_prefix") or ""
        self.suffix: str = self.model.get("end_of_word_suffix") or ""
        self.byte_level = '"ByteLevel"' in json.dumps([self.data["pre_tokenizer"], self.data["normalizer"]])
        self.byte_fallback = bool(self.model.get("byte_fallback"))

    @cached_property
    def names(self) -> dict[int, str]:
        """Number -> piece, added ones included."""
        vocab = self.model["vocab"]
        own = enumerate(piece for piece, _ in vocab) if isinstance(vocab, list) else ((n, p) for p, n in vocab.items())
        return dict(own) | {added["id"]: added["content"] for added in self.data["added_tokens"]}

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {piece: number for number, piece in self.names.items()}

    @cached_property
    def unknown(self) -> int | None:
        """The piece for what cannot be spelled."""
        if "unk_id" in self.model:
            return self.model["unk_id"]
        return self.numbers.get(self.model.get("unk_token") or "")

    @cached_property
    def characters(self) -> dict[int, str]:
        """Number -> character of pieces of one character, at the beginning of a word or inside ("##x")."""
        bare = {number: piece.removeprefix(self.prefix) for number, piece in self.names.items()}
        bare = {number: piece.removesuffix(self.suffix) for number, piece in bare.items()}
        return {number: piece for number, piece in bare.items() if len(piece) == 1}

    def always(self, seen: Collection[str] = ()) -> set[int]:
        """Pieces that have to stay so that any text encodes, and texts with these characters without loss."""
        kept = {added["id"] for added in self.data["added_tokens"]}
        kept |= {place[at] for place, at in _numbers_in(self.data)}
        kept |= {self.unknown} if self.unknown is not None else set()
        if self.byte_fallback:
            kept |= {number for number, piece in self.names.items() if BYTE.fullmatch(piece)}
        if self.model["type"] == "Unigram":  # an unknown character costs as much as the least likely piece, and more
            kept.add(min(range(len(self.model["vocab"])), key=lambda number: self.model["vocab"][number][1]))
        if self.byte_level or (self.unknown is None and not self.byte_fallback):
            return kept | self.characters.keys()  # characters are bytes, or nothing stands for unknown ones
        wanted = BASE.union(seen)
        return kept | {number for number, character in self.characters.items() if character in wanted}

    @cached_property
    def parts(self) -> Callable[[int], set[int]]:
        """The pieces that this one is merged from, step by step; it cannot come about without them."""
        if self.model["type"] != "BPE":
            return lambda _number: set()
        ranks = {(left, right): rank for rank, (left, right) in enumerate(self.model["merges"])}
        return lambda number: {self.numbers[piece] for piece in self._merged(self.names[number], ranks)}

    def _merged(self, piece: str, ranks: Mapping[tuple[str, str], int]) -> set[str]:
        """All symbols on the way from characters to this piece.

        The way does not depend on the rest of the word: where the piece is in the result, no merge went over its edges.
        """
        symbols = self._symbols(piece)
        seen = set(symbols)
        while steps := [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]:
            _, at = min(steps)  # the earliest merge; the leftmost, where it fits twice
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1].removeprefix(self.prefix)]
            seen.add(symbols[at])
        return seen & self.numbers.keys() if symbols == [piece] else set()  # else no merge makes it; it is taken whole

    def _symbols(self, piece: str) -> list[str]:
        inside = piece.startswith(self.prefix)
        bare = piece.removeprefix(self.prefix).removesuffix(self.suffix)
        symbols = [(self.prefix if at or inside else "") + character for at, character in enumerate(bare)]
        if symbols and piece.endswith(self.suffix):
            symbols[-1] += self.suffix
        return symbols

    def only(self, new: Mapping[int, int]) -> dict[str, Any]:
        """tokenizer.json with these pieces alone, under their new numbers."""
        data = copy.deepcopy({name: value for name, value in self.data.items() if name != "model"})
        model, vocab = dict(self.model), self.model["vocab"]
        data["model"] = model
        if isinstance(vocab, list):
            model["vocab"] = [entry for number, entry in enumerate(vocab) if number in new]
            model["unk_id"] = new.get(model["unk_id"])
        else:
            model["vocab"] = {piece: new[number] for piece, number in vocab.items() if number in new}
        if "merges" in model:
            model["merges"] = [
                [left, right] for left, right in model["merges"] if self._possible(left, right, model["vocab"])
            ]
        for added in data["added_tokens"]:
            added["id"] = new[added["id"]]
        for place, at in _numbers_in(data):
            place[at] = new[place[at]]
        return data

    def _possible(self, left: str, right: str, vocab: Collection[str]) -> bool:
        return left in vocab and right in vocab and left + right.removeprefix(self.prefix) in vocab


def _numbers_in(data: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Where numbers of pieces stand outside the vocabulary: a list or dict, and the place in it."""
    if data.get("padding"):
        yield data["padding"], "pad_id"
    processor = data.get("post_processor") or {}
    for one in processor.get("processors", [processor]):
        for end in ("sep", "cls"):
            if end in one:
                yield one[end], 1
        for special in (one.get("special_tokens") or {}).values():
            for at in range(len(special["ids"])):
                yield special["ids"], at


def rebuild_tokenizer(
    tokenizer: PreTrainedTokenizerBase, data: dict[str, Any], config: PreTrainedConfig
) -> PreTrainedTokenizerBase:
    """A tokenizer with other contents and the same settings: the one that stock transformers loads from a folder."""
    wanted = Tokenizer.from_str(json.dumps(data)).to_str()
    with tempfile.TemporaryDirectory() as name, quiet_transformers():
        folder = Path(name)
        config.to_json_file(folder / "config.json")  # the class of the tokenizer depends on it
        tokenizer.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(wanted, encoding="utf-8")
        made = _load(folder)
        if _backend(made).to_str() != wanted:  # some classes build parts of it anew, and not as they were
            settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            settings |= {"tokenizer_class": PLAIN, "model_input_names": tokenizer.model_input_names}
            (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
            made = _load(folder)
        if _backend(made).to_str() != wanted:
            raise ProofFailed(f"{type(tokenizer).__name__} does not load with fewer pieces as it was saved")
    made.name_or_path = tokenizer.name_or_path
    made.padding_side, made.truncation_side = tokenizer.padding_side, tokenizer.truncation_side
    return made


def _load(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    return cast("PreTrainedTokenizerFast", tokenizer).backend_tokenizer
