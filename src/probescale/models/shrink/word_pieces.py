"""What words become after trimming the vocabulary: pieces per word, and unseen words that are spelled out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase

from probescale.utils.files import Record

WORD = re.compile(r"[^\W\d_]{2,}")  # letters: a single one cannot be spelled out
MARKS = "##", "▁", "Ġ"  # of pieces inside or at the beginning of words
SPELLED = 3  # letters: shorter words say little


class WordPieces(Record):
    """How two tokenizers cut the same words; the small model's vocabulary is a part of the original's."""

    words: int
    pieces: float  # per word, of the small model
    pieces_before: float  # of the original
    unseen: int  # different words that the training texts do not have
    spelled: float  # share of them that the small model reads letter by letter
    spelled_before: float

    def sentence(self) -> str:
        """The figures for a person."""
        text = (
            f"After trimming the vocabulary, a word of dev has {self.pieces:.2f} pieces on average instead of "
            f"{self.pieces_before:.2f}."
        )
        if not self.unseen:
            return f"{text} Dev has no word that the training texts do not have."
        return (
            f"{text} Of {self.unseen:,} words that the training texts do not have, {self.spelled:.1%} are spelled out "
            f"letter by letter ({self.spelled_before:.1%} before)."
        )


def measure_pieces(
    small: PreTrainedTokenizerBase, original: PreTrainedTokenizerBase, texts: Iterable[str], known: Iterable[str]
) -> WordPieces:
    """How words of these texts are cut; `known`: the texts that the vocabulary was trimmed by."""
    counts = Counter(word for text in texts for word in WORD.findall(text))
    seen = {word.lower() for text in known for word in WORD.findall(text)}
    unseen = sorted(word for word in counts if word.lower() not in seen and len(word) >= SPELLED)
    words, total = list(counts), max(sum(counts.values()), 1)
    after, before = (dict(zip(words, _cut(tokenizer, words), strict=True)) for tokenizer in (small, original))

    def mean(cut: dict[str, list[str]]) -> float:
        return sum(counts[word] * len(pieces) for word, pieces in cut.items()) / total

    def spelled(cut: dict[str, list[str]]) -> float:
        return sum(_is_spelled(cut[word]) for word in unseen) / max(len(unseen), 1)

    return WordPieces(
        words=sum(counts.values()),
        pieces=round(mean(after), 4),
        pieces_before=round(mean(before), 4),
        unseen=len(unseen),
        spelled=round(spelled(after), 4),
        spelled_before=round(spelled(before), 4),
    )


def _cut(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> list[list[str]]:
    """The pieces of every word, as it stands after a space."""
    if not words:
        return []
    plain = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
    ids = tokenizer([f" {word}" for word in words], **plain)["input_ids"]  # type: ignore[arg-type]
    return [tokenizer.convert_ids_to_tokens(pieces) for pieces in ids]  # type: ignore[misc]


def _is_spelled(pieces: list[str]) -> bool:
    """Whether every piece is a single letter.

    >>> _is_spelled(["p", "##l", "##o"]), _is_spelled(["play", "##s"]), _is_spelled(["Ġp", "l", "o"])
    (True, False, True)
    """
    for mark in MARKS:
        pieces = [piece.removeprefix(mark) for piece in pieces]
    letters = [piece for piece in pieces if piece]
    return len(letters) >= SPELLED and all(len(piece) == 1 for piece in letters)
