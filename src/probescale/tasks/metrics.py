"""Metrics by name, each for one kind of task.

A metric turns every prediction into a few numbers once, and computes its value from them: resampling repeats only the
second step. A metric is added by one function with the decorator `metric`. F1 and Matthews correlation are those of
scikit-learn (a test compares them), counted here because they are computed thousands of times for an interval. scipy is
imported when a metric is computed, not when its name is looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from probescale.tasks.spans import count_spans
from probescale.utils.registry import first_doc_line

Value = Callable[[np.ndarray], float]  # (answers, numbers) -> the metric
Read = Callable[[np.ndarray, np.ndarray, tuple[str, ...]], np.ndarray]  # gold, predicted, names -> (answers, numbers)
Share = Callable[[np.ndarray], np.ndarray]  # (answers, numbers) -> (answers, 2), what is right and of how much


@dataclass(frozen=True)
class Metric:
    """Called with the right and the predicted answers, one per input: labels, numbers, or tuples of tags."""

    kind: str  # of task
    read: Read
    value: Value
    lower_is_better: bool = False
    factor: float = 100.0  # by which values are shown: shares as per cent
    binary: bool = False  # about one of two labels
    share: Share | None = None  # for metrics that are shares, which have exact intervals
    names: tuple[str, ...] = ()  # of labels or tags
    positive: int = 1  # number of the label that binary metrics are about

    @property
    def help(self) -> str:
        return first_doc_line(self.value)

    def for_names(self, names: tuple[str, ...], positive: str | None = None) -> Metric:
        """The same metric for labels with these names. `positive`: the label that binary metrics are about."""
        return replace(self, names=names, positive=1 if positive is None else names.index(positive))

    def rows(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        rows = self.read(gold, predicted, self.names)
        return rows == self.positive if self.binary else rows

    def __call__(self, gold: np.ndarray, predicted: np.ndarray) -> float:
        return float(self.value(self.rows(gold, predicted)))

    def retention(self, value: float, original: float) -> float | None:
        """The share of the original's value that is kept; None where no share can be named."""
        kept, whole = (original, value) if self.lower_is_better else (value, original)
        return kept / whole if whole > 0 else None

    def keeping(self, share: float, original: float) -> float:
        """The value that keeps this share of the original's."""
        return original / share if self.lower_is_better else original * share

    def show(self, value: float, digits: int = 2) -> str:
        """A value as people read it: shares times 100; bits and perplexities as they are, with a digit more."""
        return f"{self.factor * value:.{digits if self.factor != 1 else digits + 1}f}"

    def loss(self, before: float, after: float) -> float:
        """By how much the metric becomes worse."""
        return after - before if self.lower_is_better else before - after


METRICS: dict[str, Metric] = {}
FOUND = 10  # passages of a search that are looked at


def _both(gold: np.ndarray, predicted: np.ndarray, _names: tuple[str, ...]) -> np.ndarray:
    return np.stack([gold, predicted], 1)


def metric(
    kind: str,
    read: Read = _both,
    *,
    lower_is_better: bool = False,
    factor: float = 100.0,
    binary: bool = False,
    share: Share | None = None,
) -> Callable[[Value], Value]:
    """Register a metric for a kind of task, under the function's name; its docstring is the help.

    `binary`: it is about one of two labels, and gets rows of yes and no.
    """

    def register(value: Value) -> Value:
        METRICS[value.__name__] = Metric(kind, read, value, lower_is_better, factor, binary, share)
        return value

    return register


def _right_rows(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[:, 0] == rows[:, 1], np.ones(len(rows))], 1)


@metric("class", share=_right_rows)
def accuracy(rows: np.ndarray) -> float:
    """Share of right answers."""
    return float(np.mean(rows[:, 0] == rows[:, 1]))


@metric("class", binary=True)
def f1(rows: np.ndarray) -> float:
    """F1 of the label that task.positive names, as GLUE uses for MRPC and QQP: for two labels, one of them rare."""
    gold, predicted = rows.T
    return float(2 * (gold & predicted).sum() / max(gold.sum() + predicted.sum(), 1))


@metric("class")
def macro_f1(rows: np.ndarray) -> float:
    """F1 of every class, averaged: for unbalanced labels."""
    right, gold, predicted = _count(rows)
    return float((2 * right / (gold + predicted)).mean())


@metric("class")
def matthews(rows: np.ndarray) -> float:
    """Matthews correlation, as GLUE uses for CoLA."""
    right, gold, predicted = _count(rows)
    total = len(rows)
    spread = (total**2 - (predicted**2).sum()) * (total**2 - (gold**2).sum())
    return float((right.sum() * total - gold @ predicted) / np.sqrt(spread)) if spread > 0 else 0.0


def _count(rows: np.ndarray) -> np.ndarray:
    """(3, classes) right, real and predicted answers of every class that occurs.

    By counting: a thousand resamples of scikit-learn's functions take minutes where dev has many rows.
    """
    _, numbers = np.unique(rows, return_inverse=True)
    gold, predicted = numbers.reshape(rows.shape).T
    classes = numbers.max() + 1
    return np.stack([np.bincount(x, minlength=classes) for x in (gold[gold == predicted], gold, predicted)]).astype(
        float
    )


def _label_counts(gold: np.ndarray, predicted: np.ndarray, _names: tuple[str, ...]) -> np.ndarray:
    """(texts, 3 x labels) whether each label is right, real and predicted."""
    real, guessed = (np.array(each.tolist()).reshape(len(each), -1) > 0 for each in (gold, predicted))
    return np.concatenate([real & guessed, real, guessed], 1).astype(float)


def _matched_labels(rows: np.ndarray) -> np.ndarray:
    """F1 is the share of right labels in the mean number of predicted and real ones."""
    right, real, guessed = np.split(rows, 3, 1)
    return np.stack([right.sum(1), (real.sum(1) + guessed.sum(1)) / 2], 1)


@metric("labels", _label_counts, share=_matched_labels)
def micro_f1(rows: np.ndarray) -> float:
    """F1 of all labels of all texts together, for several labels per text: frequent labels count most."""
    right, of = _matched_labels(rows).sum(0)
    return float(right / max(of, 1e-9))


@metric("labels", _label_counts)
def label_f1(rows: np.ndarray) -> float:
    """F1 of every label, averaged, for several labels per text: rare labels count as much as others."""
    right, real, guessed = rows.sum(0).reshape(3, -1)
    occurs = real + guessed > 0
    return float((2 * right[occurs] / (real + guessed)[occurs]).mean()) if occurs.any() else 0.0


def _label_scores(gold: np.ndarray, predicted: np.ndarray, _names: tuple[str, ...]) -> np.ndarray:
    """(texts, 2 x labels) whether each label is real, and its score."""
    return np.concatenate([np.array(each.tolist()).reshape(len(each), -1) for each in (gold, predicted)], 1)


@metric("labels", _label_scores)
def average_precision(rows: np.ndarray) -> float:
    """Mean precision at the rank of every text that has a label, averaged over labels: without thresholds."""
    real, scores = np.split(rows, 2, 1)
    order = np.argsort(-scores, 0, kind="stable")
    real = np.take_along_axis(real, order, 0)[:, real.any(0)]
    precision = real.cumsum(0) / np.arange(1, len(real) + 1)[:, None]
    return float(((precision * real).sum(0) / real.sum(0)).mean()) if real.size else 0.0


@metric("number")
def pearson(rows: np.ndarray) -> float:
    """Correlation of the numbers; 0 where one side does not vary."""
    apart = rows - rows.mean(0)
    lengths = np.sqrt((apart**2).sum(0))
    # Differences that are rounding errors of the mean are none.
    if (lengths <= 1e-12 * np.abs(rows).max(0) * len(rows)).any():
        return 0.0
    return float(np.clip(apart[:, 0] @ apart[:, 1] / lengths.prod(), -1, 1))


@metric("number")
def spearman(rows: np.ndarray) -> float:
    """Correlation of the numbers' ranks, as GLUE uses for STS-B; 0 where one side does not vary."""
    from scipy.stats import rankdata

    return pearson(rankdata(rows, axis=0))


@metric("number")
def r2(rows: np.ndarray) -> float:
    """Share of the numbers' variance that is explained; below 0: worse than their mean."""
    gold, predicted = rows.T
    spread = ((gold - gold.mean()) ** 2).sum()
    return float(1 - ((gold - predicted) ** 2).sum() / spread) if spread > 0 else 0.0


def _is_found(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[:, 1] <= FOUND, np.ones(len(rows))], 1)


@metric("embedding", share=_is_found)
def recall_at_10(rows: np.ndarray) -> float:
    """Share of questions whose passage is among the ten nearest of all passages, for pairs that belong together."""
    return float(np.mean(rows[:, 1] <= FOUND))


def _gain(rows: np.ndarray) -> np.ndarray:
    """(questions, 2) what the passage's rank counts, and 1: a mean of numbers between 0 and 1 is a share."""
    ranks = rows[:, 1]
    return np.stack([np.where(ranks <= FOUND, 1 / np.log2(1 + ranks), 0.0), np.ones(len(ranks))], 1)


@metric("embedding", share=_gain)
def ndcg_at_10(rows: np.ndarray) -> float:
    """The same, but a passage counts by its rank: 1 for the first, 0.63 for the second, 0.29 for the tenth."""
    return float(_gain(rows)[:, 0].mean())


def _tags(gold: np.ndarray, predicted: np.ndarray, _names: tuple[str, ...]) -> np.ndarray:
    """(sentences, 2) the number of right tags and of all tags; words without a tag do not count."""
    pairs = [[(a, b) for a, b in zip(one, other, strict=True) if a >= 0] for one, other in _sentences(gold, predicted)]
    return np.array([(sum(a == b for a, b in sentence), len(sentence)) for sentence in pairs])


def _spans(gold: np.ndarray, predicted: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """(sentences, 3) the number of right, predicted and gold spans. A word without an answer is in no span."""
    called = [*names, "O"]  # number -1 is the last entry
    rows = []
    for one, other in _sentences(gold, predicted):
        pairs = [(called[a], called[b]) for a, b in zip(one, other, strict=True) if a >= 0]
        rows.append(count_spans([a for a, _ in pairs], [b for _, b in pairs]))
    return np.array(rows)


def _sentences(gold: np.ndarray, predicted: np.ndarray) -> zip[tuple[tuple[int, ...], tuple[int, ...]]]:
    return zip(gold, predicted, strict=True)


@metric("tags", _tags, share=lambda rows: rows)
def tag_accuracy(rows: np.ndarray) -> float:
    """Share of right tags, over all words that have one."""
    right, words = rows.sum(0)
    return float(right / max(words, 1))


def _matched_spans(rows: np.ndarray) -> np.ndarray:
    """F1 is the share of right spans in the mean number of predicted and gold ones."""
    return np.stack([rows[:, 0], rows[:, 1:].mean(1)], 1)


@metric("tags", _spans, share=_matched_spans)
def entity_f1(rows: np.ndarray) -> float:
    """F1 of whole spans, as CoNLL-2003 and seqeval count: for tags such as B-PER, I-PER and O."""
    right, guessed, real = rows.sum(0)
    return float(2 * right / max(guessed + real, 1))


def _documents(_gold: np.ndarray, predicted: np.ndarray, _names: tuple[str, ...]) -> np.ndarray:
    """(documents, 3) nats, tokens and bytes."""
    return np.array([list(row) for row in predicted], float)


@metric("text", _documents, lower_is_better=True, factor=1)
def bits_per_byte(rows: np.ndarray) -> float:
    """Bits that a model needs for a byte of text: comparable between models with different tokenizers."""
    nats, _, size = rows.sum(0)
    return float(nats / np.log(2) / max(size, 1e-9))


@metric("text", _documents, lower_is_better=True, factor=1)
def perplexity(rows: np.ndarray) -> float:
    """Among how many equally likely tokens a model chooses, on average; only for models with the same tokenizer."""
    nats, tokens, _ = rows.sum(0)
    return float(np.exp(min(nats / max(tokens, 1), 700)))
