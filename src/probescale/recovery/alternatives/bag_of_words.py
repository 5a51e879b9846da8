"""A bag of words: which words and pairs of neighbouring words a text has, wherever they stand in it.

Words are separated by white space and punctuation: in languages without spaces this alternative is weak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from probescale.recovery.alternatives.lessons import LessonSource
from probescale.recovery.alternatives.simple_model import SimpleModel
from probescale.recovery.alternatives.sparse_probe import SparseProbe
from probescale.tasks.data import Data

TOKEN = r"\w+|[^\w\s]"  # words, and punctuation marks one by one
PENALTIES = (1.0, 10.0, 100.0)  # as scikit-learn's C

# Limits that keep this at seconds to half a minute on one core; beyond them, the rarest features are left out. (63,000
# phrases of SST-2 have 86,000.) A classifier has a weight per feature and class, and computes rows x classes.
MOST_FEATURES, LEAST_FEATURES, MOST_WEIGHTS = 100_000, 5_000, 10_000_000
MOST_UNLABELLED_TEXTS, MOST_UNLABELLED_WORDS, MOST_ANSWERS = 60_000, 100_000, 5_000_000


def fit_bag_of_words(source: LessonSource) -> SimpleModel:
    """TF-IDF of words and pairs of words with logistic or ridge regression; for words, of their form and neighbours.

    Learns from all labelled rows, and from at most 60,000 unlabelled texts (100,000 words where words are tagged;
    fewer with more than 80 classes or 50 tags).
    """
    data = source.train
    classes = max(len(data.names), 1)
    most = MOST_UNLABELLED_WORDS if data.per_word else MOST_UNLABELLED_TEXTS
    lessons = source.draw(None, min(most, MOST_ANSWERS // classes))
    most_features = int(np.clip(MOST_WEIGHTS // classes, LEAST_FEATURES, MOST_FEATURES))
    words = _WordFeatures.fit(lessons.data, most_features)
    probe = lessons.fit(SparseProbe(source.seed), words.encode(lessons.data), PENALTIES)
    params = int(np.count_nonzero(probe.weights)) + probe.bias.size + words.params
    return SimpleModel("bag of words", words.encode, probe, params)


@dataclass(frozen=True)
class _WordFeatures:
    """One vectorizer for each text of an input: its vocabulary, and how rare each of its features is."""

    vectorizers: tuple[Any, ...]  # scikit-learn's

    @classmethod
    def fit(cls, data: Data, most_features: int) -> _WordFeatures:
        """Collect the vocabulary of each text."""
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

        def vectorizer(columns: int) -> CountVectorizer:
            options: dict[str, Any] = {"max_features": most_features // columns, "dtype": np.float32}
            if data.per_word:
                return CountVectorizer(**options, analyzer=_as_they_are)  # type: ignore[arg-type] - functions are allowed
            return TfidfVectorizer(**options, token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True)

        documents = _list_documents(data)
        return cls(tuple(vectorizer(len(documents)).fit(column) for column in documents))

    @property
    def params(self) -> int:
        """Numbers to store besides the weights: inverse document frequencies."""
        return sum(len(each.idf_) for each in self.vectorizers if hasattr(each, "idf_"))

    def encode(self, data: Data) -> Any:  # noqa: ANN401 - a sparse matrix
        """(rows, features) of all texts, or of all words."""
        from scipy.sparse import csr_matrix, hstack

        columns = zip(self.vectorizers, _list_documents(data), strict=True)
        return csr_matrix(hstack([each.transform(column) for each, column in columns]))


def _list_documents(data: Data) -> list[Sequence[Any]]:
    """First texts and second texts; where words are tagged, the features of every word."""
    if not data.per_word:
        return list(zip(*data.inputs, strict=True))
    sentences = ([word for word, _ in data.words_in(number)] for number in range(len(data)))
    return [[_describe_word(words, at) for words in sentences for at in range(len(words))]]


def _describe_word(words: Sequence[str], at: int) -> list[str]:
    """The features of a word: itself, its last three letters, its shape, and the words before and after it.

    >>> _describe_word(["In", "May", "1999"], 1)
    ['word=may', 'suffix=may', 'shape=Xx', 'before=in', 'after=1999']
    """
    before, word, after = ("", *words, "")[at : at + 3]
    shape = "".join(kind for kind, _ in groupby(map(_letter_kind, word)))
    lower = word.lower()
    features = {"word": lower, "suffix": lower[-3:], "shape": shape, "before": before.lower(), "after": after.lower()}
    return [f"{name}={value}" for name, value in features.items()]


def _letter_kind(letter: str) -> str:
    if letter.isdigit():
        return "9"
    return letter if not letter.isalpha() else "X" if letter.isupper() else "x"


def _as_they_are(features: list[str]) -> list[str]:
    return features
