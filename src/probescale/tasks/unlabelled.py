"""Texts without labels, for a teacher to answer: the user's own, and changed copies of the training texts."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from probescale.config import UnlabelledConfig
from probescale.errors import UserError
from probescale.sources import local_path
from probescale.tasks.data import Data, Examples, TaggedSentences, without_repeats
from probescale.tasks.readers import read_columns

DROPPED, REPLACED, SWAPPED = 0.1, 0.15, 0.15  # shares of the words, and of the second texts


def load_unlabelled(config: UnlabelledConfig, train: Data, dev: Data, seed: int, *, field: str) -> Data:
    """Texts in the form of the training data, without those that stand in train or dev."""
    texts, pairs = _read(config, paired=train.pairs is not None, field=field)
    found: Data = without_repeats(_like(train, texts, pairs), joined(train, dev))
    if not len(found):
        raise UserError(f"{config.source} has no text that is not in train or dev already", field=f"{field}.source")
    if config.most is not None and len(found) > config.most:
        found = found.take(sorted(random.Random(seed).sample(range(len(found)), config.most)))
    return found


def changed_copies(train: Data, copies: int, seed: int) -> Data:
    """Every training text so many times, with words dropped and replaced by other words of the training texts.

    Second texts are also exchanged for those of other rows. Nobody labels these copies: the teacher answers them.
    """
    rng = random.Random(seed)
    words = [word for text in train.texts for word in text.split()]
    texts = tuple(_changed(text, words, rng) for _ in range(copies) for text in train.texts)
    pairs = None
    if train.pairs:
        every = train.pairs
        chosen = [rng.choice(every) if rng.random() < SWAPPED else pair for _ in range(copies) for pair in every]
        pairs = tuple(_changed(pair, words, rng) for pair in chosen)
    return _like(train, texts, pairs)


def _changed(text: str, words: list[str], rng: random.Random) -> str:
    drawn = [(word, rng.random()) for word in text.split()]
    kept = [rng.choice(words) if draw > 1 - REPLACED else word for word, draw in drawn if draw >= DROPPED]
    return " ".join(kept) or text


def _read(config: UnlabelledConfig, *, paired: bool, field: str) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    if paired != (config.pair is not None):
        wrong = "the task is about pairs of texts" if paired else "the task is about single texts"
        raise UserError(
            wrong, field=f"{field}.pair", hint="name the second text's column" if paired else "leave it out"
        )
    path = local_path(config.source, field=f"{field}.source")
    if path is not None and Path(path.name.removesuffix(".gz")).suffix == ".txt":
        return tuple(_lines(path, field)), None
    wanted: dict[str, str | int] = {"text": config.text, **({"pair": config.pair} if config.pair else {})}
    columns = read_columns(config.source, config.split, wanted, field=field)
    rows = [
        tuple(" ".join(cell) if isinstance(cell, (list, tuple)) else cell for cell in row)
        for row in zip(*columns.values(), strict=True)
    ]
    usable = [row for row in rows if all(isinstance(cell, str) and cell.strip() for cell in row)]
    if not usable:
        raise UserError(f'column "{config.text}" of {config.source} holds no texts', field=f"{field}.text")
    texts, *pairs = zip(*usable, strict=True)
    return texts, pairs[0] if pairs else None


def _lines(path: Path, field: str) -> list[str]:
    opened: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:  # type: ignore[attr-defined]
            return [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {error}", field=f"{field}.source") from error


def _like(train: Data, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Data:
    """In the training data's form; the labels stand for nothing."""
    if isinstance(train, TaggedSentences):
        words = tuple(tuple(text.split()) for text in texts)
        return replace(train, words=words, tags=tuple((-1,) * len(sentence) for sentence in words))
    return replace(train, texts=texts, pairs=pairs, labels=(0,) * len(texts))


def joined(train: Data, more: Data | None) -> Data:
    """The rows of both, train first."""
    if more is None:
        return train
    if isinstance(train, TaggedSentences):
        assert isinstance(more, TaggedSentences)
        return replace(train, words=train.words + more.words, tags=train.tags + more.tags)
    assert isinstance(more, Examples)
    pairs = train.pairs + more.pairs if train.pairs and more.pairs else None
    return replace(train, texts=train.texts + more.texts, pairs=pairs, labels=train.labels + more.labels)
