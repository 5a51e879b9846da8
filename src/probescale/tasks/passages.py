"""Texts without labels, whose embeddings by the original are what a smaller model learns; and pairs to measure it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from probescale.config import ProbeTarget

if TYPE_CHECKING:
    from typing_extensions import Self

TaughtPair = tuple[int, int, float | None]  # the numbers of two texts, and their score; None: they belong together
Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> (texts, width) the original's embeddings
PROBED = 32  # random directions of the embedding that a probe predicts: they explain as much as all, on average
PAIRS = 10_000  # of dev texts, whose similarity is compared with the original's
SEARCHED = 256  # queries that are searched for at once: as many rows of similarities are in memory


@dataclass(frozen=True)
class Passages:
    """Texts, and on dev the pairs of them that are compared.

    A pair has a score, or its texts belong together (a question and the passage that answers it), or it is there to
    compare its similarity with the original's.
    """

    texts: tuple[str, ...]
    links: tuple[tuple[int, int], ...] | None = None  # pairs, by the numbers of their texts; None: texts to learn from
    scores: tuple[float, ...] | None = None
    retrieval: bool = False  # the second text of a pair is to be found by the first one
    taught: tuple[TaughtPair, ...] = ()  # pairs that are learned, beside the original's vectors
    embed: Embed | None = field(default=None, compare=False, repr=False)  # None: the original is not loaded yet
    names: tuple[str, ...] = ()
    pairs: None = None
    kind: str = "embedding"
    per_word: ClassVar[bool] = False

    @property
    def target(self) -> ProbeTarget:
        return "number"

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Self:
        """These texts, and the pairs of which both texts are among them."""
        place, kept = {row: new for new, row in enumerate(rows)}, []
        if self.links is not None:
            kept = [n for n, (one, other) in enumerate(self.links) if one in place and other in place]
        return replace(
            self,
            texts=tuple(self.texts[row] for row in rows),
            links=self.links and tuple((place[self.links[n][0]], place[self.links[n][1]]) for n in kept),
            scores=self.scores and tuple(self.scores[n] for n in kept),
            taught=tuple((place[a], place[b], score) for a, b, score in self.taught if a in place and b in place),
        )

    def draw(self, most: int, seed: int) -> Self:
        """At most so many texts, both texts of pairs that are learned first; or so many of the pairs to compare.

        Where passages are searched, all of them stay: among fewer, each would be found more easily.
        """
        rng = np.random.default_rng(seed)
        if self.links is not None:
            if len(self.links) <= most:
                return self
            drawn = sorted(rng.permutation(len(self.links))[:most].tolist())
            links = [self.links[number] for number in drawn]
            texts = {text for link in links for text in link} | set(self.passages if self.retrieval else ())
            scores = self.scores and tuple(self.scores[number] for number in drawn)
            return replace(self, links=tuple(links), scores=scores).take(sorted(texts))
        if len(self) <= most:
            return self
        pairs = [self.taught[number][:2] for number in rng.permutation(len(self.taught)).tolist()]
        texts = set[int]()
        for group in [*pairs, *((text,) for text in rng.permutation(len(self)).tolist())]:
            new = set(group) - texts
            if len(texts) + len(new) <= most:
                texts |= new
        return self.take(sorted(texts))

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        return [(text,) for text in self.texts]

    @property
    def content(self) -> tuple[str, ...]:
        return self.texts

    @property
    def fingerprint(self) -> str:
        taught = [self.taught] if self.taught else []
        content = json.dumps([self.texts, self.links, self.scores, self.retrieval, *taught], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def classes(self) -> Sequence[int]:
        return [0] * len(self)

    @property
    def gold(self) -> np.ndarray:
        """(pairs,) scores, ranks (all 1), or the original's similarities; texts to learn from have zeros."""
        if self.links is None:
            return np.zeros(len(self))
        if self.scores is not None:
            return np.array(self.scores)
        return (
            np.ones(len(self.links)) if self.retrieval or self.embed is None else self.compare(self.embed(self.texts))
        )

    def compare(self, vectors: np.ndarray) -> np.ndarray:
        """(pairs,) the similarities of their texts; or where they are to be found, the rank of the second text."""
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        one, other = np.array(self.links or ()).reshape(-1, 2).T
        near = (unit[one] * unit[other]).sum(1).astype(float)
        if not self.retrieval:
            return near
        pool, ranks = unit[np.unique(np.array(self.passages))], []
        for start in range(0, len(one), SEARCHED):
            here = slice(start, start + SEARCHED)
            ranks.append((unit[one[here]] @ pool.T > near[here, None] + 1e-6).sum(1))
        return 1.0 + np.concatenate(ranks)

    @property
    def passages(self) -> list[int]:
        """The texts that are searched: all but the first texts of pairs."""
        queries = {one for one, _ in self.links or ()}
        return [number for number in range(len(self)) if number not in queries]

    @property
    def row_labels(self) -> np.ndarray:
        return np.full(len(self), np.nan)

    @property
    def rows_per_input(self) -> np.ndarray:
        return np.ones(len(self), np.int64)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(self)), np.zeros(len(self), np.int64)

    def with_texts(self, texts: tuple[str, ...], pairs: tuple[str, ...] | None) -> Self:
        return replace(self, texts=texts, links=None, scores=None, taught=())

    def joined(self, more: Any) -> Self:  # noqa: ANN401 - data of the same class
        return replace(self, texts=self.texts + more.texts, links=None, scores=None)

    def with_names(self, names: tuple[str, ...]) -> Self:
        return self

    def fully_labelled(self) -> Self:
        return self

    def words_in(self, number: int) -> list[tuple[str, bool]]:
        return []

    def values_at(self, inputs: np.ndarray, words: np.ndarray) -> np.ndarray:
        """What a probe predicts; before the original is loaded, the lengths of the texts, to check that they differ."""
        texts = [self.texts[number] for number in inputs]
        if self.embed is None:
            return np.array([len(text) for text in texts], np.float32)
        vectors = self.embed(texts)
        directions = np.random.default_rng(0).normal(size=(vectors.shape[1], min(PROBED, vectors.shape[1])))
        return (vectors @ directions).astype(np.float32)

    def texts_at(self, inputs: np.ndarray, words: np.ndarray) -> list[tuple[str, ...]]:
        return [(self.texts[number],) for number in inputs]

    def linked(self, seed: int) -> Self:
        """The same texts with pairs to compare: half of them at random, half of texts that share rare words."""
        if self.links is not None:
            return self
        rng = np.random.default_rng(seed)
        found = {
            (min(one, other), max(one, other)) for one, near in enumerate(_find_near(self.texts)) for other in near
        }
        near = sorted(pair for pair in found if pair[0] != pair[1])
        links = dict.fromkeys(near[number] for number in rng.permutation(len(near))[: PAIRS // 2])
        drawn = np.sort(rng.integers(len(self), size=(2 * PAIRS, 2)), axis=1)  # some are drawn twice, or of one text
        links |= dict.fromkeys((one, other) for one, other in drawn.tolist() if one != other)
        return replace(self, links=tuple(links)[:PAIRS])


def _find_near(texts: Sequence[str], most: int = 6) -> list[list[int]]:
    """For every text, the numbers of those that share most words with it, rare words counting more."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    vectors = TfidfVectorizer(token_pattern=r"\S+").fit_transform(texts)
    search = NearestNeighbors(n_neighbors=min(most, len(texts)), metric="cosine").fit(vectors)
    return search.kneighbors(vectors, return_distance=False).tolist()
