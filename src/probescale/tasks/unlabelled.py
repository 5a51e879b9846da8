"""Texts without labels, for a teacher to answer: the user's own, and changed copies of the training texts."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

from probescale.config import UnlabelledConfig
from probescale.errors import UserError
from probescale.tasks.data import Data
from probescale.tasks.readers import open_text, read_columns
from probescale.tasks.sampling import without_repeats
from probescale.utils.sources import local_path

DROPPED, REPLACED = 0.1, 0.15  # shares of the words
EXCHANGED = 0.5  # share of the copies of pairs that get another second text instead
NEAR, POOL = 5, 20_000  # it is one of the nearest, among at most so many


def load_unlabelled(config: UnlabelledConfig, train: Data, dev: Data, seed: int, *, field: str) -> Data:
    """Texts in the form of the training data, without those that stand in train or dev."""
    texts, pairs = _read(config, paired=train.pairs is not None, field=field)
    found: Data = without_repeats(train.with_texts(texts, pairs), joined(train, dev))
    if not len(found):
        raise UserError(f"{config.source} has no text that is not in train or dev already", field=f"{field}.source")
    if config.most is not None and len(found) > config.most:
        found = found.take(sorted(random.Random(seed).sample(range(len(found)), config.most)))
    return found


def changed_copies(data: Data, copies: int, seed: int) -> Data:
    """Every text so many times, with words dropped and replaced by other words of these texts.

    Half of the copies of pairs keep their words and get another row's second text that shares words with the first:
    what a model has to tell from the right one. Nobody labels the copies: the teacher answers them.
    """
    rng = random.Random(seed)
    words = [word for text in data.texts for word in text.split()]
    if data.pairs is None:
        return data.with_texts(tuple(_changed(text, words, rng) for _ in range(copies) for text in data.texts), None)
    pool = rng.sample(data.pairs, min(POOL, len(data.pairs)))
    made = [
        (text, rng.choice([pool[one] for one in near]))
        if rng.random() < EXCHANGED
        else (_changed(text, words, rng), _changed(pair, words, rng))
        for _ in range(copies)
        for text, pair, near in zip(data.texts, data.pairs, _nearest(data.texts, pool), strict=True)
    ]
    texts, pairs = zip(*made, strict=True)
    return data.with_texts(texts, pairs)


def _nearest(texts: Sequence[str], pool: Sequence[str]) -> list[list[int]]:
    """For every text those of the pool that share most words with it, rare words first."""
    vectors = TfidfVectorizer(token_pattern=r"\S+").fit([*texts, *pool])
    search = NearestNeighbors(n_neighbors=min(NEAR, len(pool)), metric="cosine").fit(vectors.transform(pool))
    return search.kneighbors(vectors.transform(texts), return_distance=False).tolist()


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
    try:
        with open_text(path) as file:
            return [line.strip() for line in file if line.strip()]
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", field=f"{field}.source") from error


def joined(train: Data, more: Data | None) -> Data:
    """The rows of both, train first."""
    return train if more is None else train.joined(more)
