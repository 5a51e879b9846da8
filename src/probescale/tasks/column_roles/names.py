"""What the name of a column says about it: a text, a label, or nothing to learn from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations

_SENTENCES = "text sentence review content comment body message tweet utterance document doc passage paragraph article"
_SENTENCES += " abstract answer response evidence hypothesis post snippet transcript input string phrase pair"
_OPENERS = "title question query subject headline summary description prompt context premise claim caption"
_LABELS = "label target class category sentiment star stars rating score intent intention emotion gold y polarity topic"
_LABELS += " stance toxicity toxic grade quality similarity relatedness judgment verdict outcome tag ner pos upos"
_COUNTERS = "id index idx uid guid uuid qid sid pid unnamed"  # of a row
_CIRCUMSTANCES = "split source fold date time timestamp datetime year month day at url uri link file filename"

_TEXT_WORDS = frozenset(f"{_SENTENCES} {_OPENERS}".split())
_OPENER_WORDS = frozenset(_OPENERS.split())  # often the shorter one of two texts: not certain if there is another text
_LABEL_WORDS = frozenset(_LABELS.split())
_WORD_LISTS = frozenset(("token", "word"))
_IGNORED = frozenset(f"{_COUNTERS} {_CIRCUMSTANCES}".split())
_KNOWN = _TEXT_WORDS | _LABEL_WORDS | _WORD_LISTS | _IGNORED
_LABEL_FORMS = ("text", "name", "id", "idx", "index", "code", "value", "string", "number")  # label_text, class_index
_CERTAIN_LABELS = (("label",), ("gold", "label"), ("label", "gold"))

_PAIRS = {
    "premise": ("hypothesis",),
    "text": ("hypothesis", "pair"),
    "question": ("sentence", "passage", "context", "answer", "document", "paragraph"),
    "query": ("passage", "document", "doc", "text", "answer", "sentence", "product title"),
    "claim": ("evidence",),
    "context": ("response",),
    "headline": ("body", "article body"),
}
_MARKS = {"1": "2", "a": "b", "first": "second", "left": "right"}  # sentence1 and sentence2, text_a and text_b


def split_name(name: str) -> tuple[str, ...]:
    """The words of a column's name, lower-case and in the singular.

    >>> split_name("reviewText"), split_name("#1 String"), split_name("ner_tags"), split_name("question2")
    (('review', 'text'), ('1', 'string'), ('ner', 'tag'), ('question', '2'))
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z\d])|(?<=[A-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])", " ", name)
    words = re.split(r"[\W_]+", spaced.lower())
    return tuple(_singular(word) for word in words if word)


def _singular(word: str) -> str:
    ends = (("ies", "y"), ("es", ""), ("s", ""))
    singulars = [word.removesuffix(end) + new for end, new in ends if word.endswith(end)]
    return next((singular for singular in singulars if word not in _KNOWN and singular in _KNOWN), word)


def _unmarked(name: str) -> tuple[str, ...]:
    """The words of a name without those that number it: ("sentence",) for sentence1."""
    words = split_name(name)
    return tuple(word for word in words if word not in ("1", "2", "a", "b")) or words


def is_text_name(name: str) -> bool:
    """Whether a column of this name holds texts; label_text holds labels.

    >>> [is_text_name(name) for name in ("Review Text", "sentence1", "label_text", "airline")]
    [True, True, False, False]
    """
    words = _unmarked(name)
    return bool(words) and words[-1] in _TEXT_WORDS and words[0] not in _LABEL_WORDS


def is_opener_name(name: str) -> bool:
    """Whether texts of this name often come with a second, longer text, as a title and a question do."""
    words = _unmarked(name)
    return bool(words) and words[-1] in _OPENER_WORDS


def is_word_list_name(name: str) -> bool:
    """Whether a column of lists with this name holds the words of sentences."""
    words = _unmarked(name)
    return bool(words) and words[-1] in _WORD_LISTS


def is_label_name(name: str) -> bool:
    """Whether a column of this name holds labels.

    >>> [is_label_name(name) for name in ("Class Index", "gold_label", "is_duplicate", "label_confidence")]
    [True, True, True, False]
    """
    words = _unmarked(name)
    if not words:
        return False
    described = words[0] in _LABEL_WORDS and words[-1] in _LABEL_FORMS
    return words[-1] in _LABEL_WORDS or described or (words[0] == "is" and len(words) > 1)


def is_certain_label_name(name: str) -> bool:
    """Whether the name leaves no doubt, whatever other columns there are."""
    return split_name(name) in _CERTAIN_LABELS


def is_ignored_name(name: str) -> bool:
    """Whether a column of this name identifies a row or says where it is from: an id, a date, a split.

    >>> [is_ignored_name(name) for name in ("id", "promptID", "created_at", "Unnamed: 0", "", "label_id")]
    [True, True, True, True, True, False]
    """
    words = _unmarked(name)
    if not words or words[0] == "unnamed":
        return True
    return words[-1] in _IGNORED and not is_label_name(name)


def is_known_name(name: str) -> bool:
    """Whether people call columns so: such a name is no cell of a first row without header."""
    words = split_name(name)
    return words in _CERTAIN_LABELS or (len(words) == 1 and words[0] in _KNOWN)


def find_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """All two names that belong together, the first text first.

    >>> find_pairs(["label", "Hypothesis", "Premise"]), find_pairs(["text_a", "text_b"]), find_pairs(["title", "body"])
    ([('Premise', 'Hypothesis')], [('text_a', 'text_b')], [])
    """
    return [
        (first, second) for first, second in permutations(names, 2) if _is_pair(split_name(first), split_name(second))
    ]


def _is_pair(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    differ = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
    marked = len(first) == len(second) and len(differ) == 1 and _MARKS.get(differ[0][0]) == differ[0][1]
    return marked or " ".join(second) in _PAIRS.get(" ".join(first), ())
