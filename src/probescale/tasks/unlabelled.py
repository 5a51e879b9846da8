"""Texts without labels, from which students learn a teacher's answers: the user's own, and changed copies of train."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable, Sequence
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
# New texts have words that no known text has, and a trimmed vocabulary cuts these into pieces that were hardly read.
MADE_UP = 0.5  # share of the replacing words that are made up of two others
LONG = 4  # letters, at least, of words that others are made up of
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
EXCHANGED = 0.5  # share of the copies of pairs whose second text is exchanged instead
NEAR, POOL = 5, 20_000  # for one of this many nearest texts, among at most this many


def load_unlabelled(config: UnlabelledConfig, train: Data, dev: Data, seed: int, *, field: str) -> Data:
    """Texts in the form of the training data, without those of train and dev."""
    texts, pairs = _read(config, paired=train.pairs is not None, field=field)
    data: Data = without_repeats(train.with_texts(texts, pairs), joined(train, dev))
    if not len(data):
        raise UserError(f"every text of {config.source} is in train or dev already", field=f"{field}.source")
    if config.most is not None and len(data) > config.most:
        data = data.take(sorted(random.Random(seed).sample(range(len(data)), config.most)))
    return data


def changed_copies(data: Data, copies: int, seed: int) -> Data:
    """`copies` copies of every text, with some words dropped and some replaced: by words of the other texts, and by
    made-up ones, of half of one word and half of another.

    Half of the copies of pairs keep their words and get the second text of another row, one that shares words with the
    first: a model has to tell it from the right one. The copies have no labels; the teacher answers them.
    """
    rng = random.Random(seed)
    words = WordPool(data.texts)
    if data.pairs is None:
        return data.with_texts(tuple(_change(text, words, rng) for _ in range(copies) for text in data.texts), None)
    second_words = WordPool(data.pairs)  # they may be in another script
    pool = rng.sample(data.pairs, min(POOL, len(data.pairs)))
    changed = [
        (text, rng.choice([pool[number] for number in near]))
        if rng.random() < EXCHANGED
        else (_change(text, words, rng), _change(pair, second_words, rng))
        for _ in range(copies)
        for text, pair, near in zip(data.texts, data.pairs, _find_nearest(data.texts, pool), strict=True)
    ]
    texts, pairs = zip(*changed, strict=True)
    return data.with_texts(texts, pairs)


def _find_nearest(texts: Sequence[str], pool: Sequence[str]) -> list[list[int]]:
    """For every text, the numbers of the texts in the pool that share most words with it; rare words count more."""
    vectors = TfidfVectorizer(token_pattern=r"\S+").fit([*texts, *pool])
    search = NearestNeighbors(n_neighbors=min(NEAR, len(pool)), metric="cosine").fit(vectors.transform(pool))
    return search.kneighbors(vectors.transform(texts), return_distance=False).tolist()


class WordPool:
    """Words to replace others by; or characters, for texts of scripts without spaces."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.words: dict[str, list[str]] = {" ": [], "": []}
        for text in texts:
            words, between = _split_words(text)
            self.words[between] += words
        self.long = list(dict.fromkeys(word for word in self.words[" "] if len(word) >= LONG))

    def draw(self, rng: random.Random, between: str) -> str:
        """A word as frequent as it is in the texts, or one that is made up of two different long ones.

        `between`: what stands between the words of the text that it is for.
        """
        if not between or not self.long or rng.random() >= MADE_UP:
            return rng.choice(self.words[between])
        first, second = rng.choice(self.long), rng.choice(self.long)
        return first[: len(first) // 2] + second[len(second) // 2 :]


def _split_words(text: str) -> tuple[list[str], str]:
    """The words of a text and what stands between them: of a script without spaces its characters, and nothing.

    >>> _split_words("two words")
    (['two', 'words'], ' ')
    """
    words = text.split()
    letters = sum(map(len, words))
    return (list("".join(words)), "") if 2 * len(UNSPACED.findall(text)) > letters else (words, " ")


def _change(text: str, pool: WordPool, rng: random.Random) -> str:
    words, between = _split_words(text)
    drawn = [(word, rng.random()) for word in words]
    kept = [pool.draw(rng, between) if draw > 1 - REPLACED else word for word, draw in drawn if draw >= DROPPED]
    return between.join(kept) or text


def _read(config: UnlabelledConfig, *, paired: bool, field: str) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    if paired != (config.pair is not None):
        raise UserError(
            f"the task is about {'pairs of' if paired else 'single'} texts",
            field=f"{field}.pair",
            hint="name the second text's column" if paired else "leave it out",
        )
    path = local_path(config.source, field=f"{field}.source")
    if path is not None and Path(path.name.removesuffix(".gz")).suffix == ".txt":
        return tuple(read_lines(path, field)), None
    wanted: dict[str, str | int] = {"text": config.text, **({"pair": config.pair} if config.pair else {})}
    columns = read_columns(config.source, config.split, wanted, header=config.header, field=field)
    rows = [
        tuple(" ".join(cell) if isinstance(cell, (list, tuple)) else cell for cell in row)
        for row in zip(*columns.values(), strict=True)
    ]
    usable = [row for row in rows if all(isinstance(cell, str) and cell.strip() for cell in row)]
    if not usable:
        raise UserError(f'column "{config.text}" of {config.source} holds no texts', field=f"{field}.text")
    texts, *pairs = zip(*usable, strict=True)
    return texts, pairs[0] if pairs else None


def read_lines(path: Path, field: str) -> list[str]:
    """The lines of a text file that are not empty."""
    try:
        with open_text(path) as file:
            return [line.strip() for line in file if line.strip()]
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", field=f"{field}.source") from error


def joined(train: Data, more: Data | None) -> Data:
    """The rows of both, train first."""
    return train if more is None else train.joined(more)
