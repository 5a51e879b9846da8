"""What a smaller model newly gets wrong, by kinds of rows."""

from __future__ import annotations

import numpy as np
import pytest

from probescale.recovery.regressions import find_regressions
from probescale.tasks.data import Examples, TaggedSentences, tuple_rows
from probescale.tasks.task import Task

TEXTS = ("good film", "not good at all", "it isn't bad , it is strange", "a long text of more than eight words in all")


def task_of(**changes) -> Task:
    train = Examples(
        texts=("good film", "bad film", "it is not a long text at all"), labels=(1, 0, 0), pairs=None, names=("-", "+")
    )
    dev = Examples(texts=TEXTS, labels=(1, 0, 1, 0), pairs=None, names=("-", "+"))
    return Task(**{"name": "t", "metric": "accuracy", "train": train, "dev": dev, "dev_split": "dev", "repeats": 0,
                   "probe_data": {}} | changes)  # fmt: skip


def test_rows_that_changed_are_found_and_counted():
    found = find_regressions(task_of(), np.array([1, 0, 1, 1]), np.array([1, 1, 0, 0]))
    assert found is not None
    assert found.agreement == 0.25
    assert (found.newly_wrong, found.newly_right) == (2, 1)
    assert [(one.row, one.right, one.original, one.small) for one in found.examples] == [
        (2, "-", "-", "+"),
        (3, "+", "+", "-"),
    ]
    slices = {one.name: one for one in found.slices}
    assert slices["all"].original == 0.75
    assert slices["all"].small == 0.5
    negated = slices["with a negation"]
    assert (negated.rows, negated.newly_wrong, negated.newly_right) == (2, 2, 0)
    assert slices["label +"].rows == 2
    assert slices["with a word that train does not have"].rows == 2
    assert (
        sum(one.rows for one in found.slices if "short" in one.name or "middle" in one.name or "long" in one.name) == 4
    )


@pytest.mark.parametrize("word", ["isn't", "isn\u2019t", "Not", "never", "without"])
def test_negations(word):
    dev = Examples(texts=(f"this {word} good", "a noted knot"), labels=(1, 0), pairs=None, names=("-", "+"))
    found = find_regressions(task_of(dev=dev), np.array([1, 0]), np.array([1, 0]))
    assert found is not None
    assert {one.name: one.rows for one in found.slices}["with a negation"] == 1


def test_a_sentence_of_tags_is_right_when_all_tags_are():
    words = (("a", "b"), ("c",))
    data = TaggedSentences(words=words, tags=((0, -1), (1,)), names=("X", "Y"))
    task = task_of(train=data, dev=data, metric="tag_accuracy")
    found = find_regressions(task, tuple_rows(((0, 1), (1,))), tuple_rows(((0, 0), (0,))))
    assert found is not None
    assert (found.newly_wrong, found.newly_right) == (1, 0)
    assert found.examples[0].text == "c"


def test_numbers_are_not_right_or_wrong():
    data = Examples(texts=("a film",), labels=(1.0,), pairs=None, names=(), target="number", kind="number")
    assert find_regressions(task_of(train=data, dev=data), np.array([1.0]), np.array([1.0])) is None
