"""Labels of a fine-tuned model and of the data: the same ones, in whatever order and case."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.data import labelled_rows
from probescale.tasks.data import TaggedSentences, load_rows
from probescale.tasks.label_matching import match_labels


@pytest.mark.parametrize(
    ("of_model", "of_data", "expected"),
    [
        (["negative", "positive"], ["negative", "positive"], ("negative", "positive")),
        (["POSITIVE", "NEGATIVE"], ["negative", "positive"], ("positive", "negative")),
        (["LABEL_0", "LABEL_1"], ["0", "1"], ("0", "1")),
        (["label_1", "Label_0"], ["0", "1"], ("1", "0")),
        ([" Spam ", "ham"], ["ham", "spam"], ("spam", "ham")),
        (["O", "B-PER", "I-PER"], ["B-PER", "I-PER", "O"], ("O", "B-PER", "I-PER")),
        (["LABEL_10", "LABEL_9"], ["9", "10"], ("10", "9")),
    ],
)
def test_the_same_labels_in_the_models_order(of_model, of_data, expected):
    assert match_labels(of_model, of_data) == expected


@pytest.mark.parametrize(
    ("of_model", "of_data"),
    [
        (["LABEL_0", "LABEL_1"], ["bad", "good"]),  # nobody knows which is which
        (["negative", "positive"], ["negative", "neutral"]),
        (["negative", "neutral", "positive"], ["negative", "positive"]),
        (["negative", "positive"], ["negative", "neutral", "positive"]),
        (["yes", "no"], ["Yes", "yes"]),  # two labels of the data differ in case alone
        (["yes", "YES"], ["yes", "no"]),
        (["LABEL_0", "0"], ["0", "1"]),
        (["LABEL_00", "LABEL_1"], ["0", "1"]),
        ([], ["0", "1"]),
    ],
)
def test_other_labels_do_not_match(of_model, of_data):
    assert match_labels(of_model, of_data) is None


@given(st.sets(st.from_regex(r"[a-z][a-z0-9 -]{0,8}[a-z0-9]", fullmatch=True), min_size=2, max_size=12), st.randoms())
def test_order_and_case_do_not_matter(names, rng: random.Random):
    of_data = tuple(sorted(names))
    order = rng.sample(of_data, len(of_data))
    of_model = [rng.choice((name, name.upper(), name.title(), f" {name}")) for name in order]
    assert match_labels(of_model, of_data) == tuple(order)
    assert match_labels(of_model[:-1], of_data) is None
    assert match_labels([*of_model, "another label"], of_data) is None


def test_rows_keep_their_labels_in_another_order_of_names():
    data = load_rows(labelled_rows(20))
    other = data.with_names(("positive", "negative"))
    assert data.names == ("negative", "positive")
    assert [other.names[label] for label in other.labels] == [data.names[label] for label in data.labels]
    assert other.labels != data.labels
    assert other.texts == data.texts
    assert other.fingerprint != data.fingerprint
    assert other.with_names(data.names) == data


def test_words_without_a_tag_keep_none():
    data = TaggedSentences((("a", "b", "c"),), ((0, -1, 2),), ("x", "y", "z"))
    other = data.with_names(("z", "x", "y"))
    assert other.tags == ((1, -1, 0),)
    assert other.with_names(data.names) == data
