"""Tags that mark spans of words, such as B-PER, I-PER and O."""

from __future__ import annotations

from collections.abc import Sequence

_SPAN_TAGS = ("B-", "I-", "E-", "S-", "L-", "U-")


def is_spans(names: Sequence[str]) -> bool:
    """Whether tags mark spans, as B-PER, I-PER and O do.

    >>> is_spans(("B-PER", "I-PER", "O")), is_spans(("NN", "VB"))
    (True, False)
    """
    return any(n[:2] in ("B-", "I-") for n in names) and all(n == "O" or n[:2] in _SPAN_TAGS for n in names)


def count_spans(gold: list[str], predicted: list[str]) -> tuple[int, int, int]:
    """The number of right, predicted and gold spans of one sentence, as seqeval finds them.

    >>> count_spans(["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O", "O", "B-LOC"])
    (1, 2, 2)
    """
    from seqeval.metrics.sequence_labeling import get_entities

    real, guessed = set(get_entities(gold)), set(get_entities(predicted))
    return len(real & guessed), len(guessed), len(real)
