"""A label that nearly no row has: which metric is taken, which label it is about, and how much its rows count."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.data import labelled_rows, write_csv
from probescale.config import TaskConfig
from probescale.errors import UserError
from probescale.tasks.balance import choose_metric, count_labels, find_dominant, weigh_classes
from probescale.tasks.data import load_rows
from probescale.tasks.notes import describe_data
from probescale.tasks.task import load_task


def data(**rows: int):
    return load_rows([(f"text {label} {n}", label) for label, count in rows.items() for n in range(count)])


def choose(train, **settings):
    return choose_metric(TaskConfig(train="a.csv", **settings), train, settings.get("metric") or "accuracy")  # type: ignore[arg-type]


def test_a_label_of_nearly_all_rows_is_found():
    assert find_dominant(data(ham=99, spam=1)) == ("ham", 0.99)
    assert find_dominant(data(ham=89, spam=11)) is None
    assert list(count_labels(data(a=2, b=3)).items()) == [("b", 3), ("a", 2)]


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ({"ham": 60, "spam": 40}, ("accuracy", None)),
        ({"ham": 99, "spam": 1}, ("f1", "spam")),
        ({"spam": 99, "zzz": 1}, ("f1", "zzz")),
        ({"no": 3, "yes": 97}, ("f1", "no")),  # of the other one, one answer for all would have an F1 of 98
        ({"equivalent": 95, "not_equivalent": 5}, ("f1", "not_equivalent")),
        ({"a": 95, "b": 3, "c": 2}, ("macro_f1", None)),
    ],
)
def test_the_metric_follows_the_labels(rows, chosen):
    assert choose(data(**rows)) == chosen


def test_what_is_given_counts():
    train = data(ham=99, spam=1)
    assert choose(train, metric="accuracy") == ("accuracy", None)
    assert choose(train, metric="macro_f1") == ("macro_f1", None)
    assert choose(train, positive="ham") == ("f1", "ham")
    assert choose(data(a=5, b=5, c=5), metric="f1", positive="b") == ("f1", "b")
    assert choose(data(no=3, yes=97), metric="f1") == ("f1", "yes"), "called yes: whoever names the metric knows why"
    assert choose(data(equivalent=5, not_equivalent=5), metric="f1") == ("f1", "equivalent")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"positive": "spm"}, 'no row has the label "spm"(?s:.*)use one of: ham, spam'),
        ({"positive": "spam", "metric": "accuracy"}, "accuracy is not about one label"),
    ],
)
def test_a_label_that_does_not_fit(settings, says):
    with pytest.raises(UserError, match=says):
        choose(data(ham=99, spam=1), **settings)


def test_f1_of_many_labels_needs_one_of_them():
    with pytest.raises(UserError, match=r"name one with task.positive, or use macro_f1"):
        choose(data(a=5, b=5, c=5), metric="f1")


def test_weights_are_one_on_average():
    train = data(ham=90, spam=10)
    assert weigh_classes(train, "none") is None
    balanced, root = weigh_classes(train, "balanced"), weigh_classes(train, "square_root")
    assert balanced == pytest.approx([100 / 180, 5])
    assert root is not None
    assert root[1] / root[0] == pytest.approx(3)
    assert root @ np.array([90, 10]) == pytest.approx(100)


def rare_task(tmp_path, rare: int, **settings):
    rows = [row for row in labelled_rows(800) if row[1] == "positive"][: 200 - rare]
    rows += [row for row in labelled_rows(800) if row[1] == "negative"][:rare]
    return load_task(TaskConfig(train=str(write_csv(tmp_path / "a.csv", rows)), **settings), 0)  # type: ignore[arg-type]


def test_the_notes_say_what_was_chosen(tmp_path):
    task = rare_task(tmp_path, 10, labels={"positive": "ham", "negative": "spam"})
    assert (task.metric, task.positive) == ("f1", "spam")
    assert task.measure(task.gold, task.gold) == 1
    (note,) = describe_data(task)
    assert note == '95.0% of the rows have the label "ham", and 2 rows of dev another: the metric is f1 of "spam"'
    (note,) = describe_data(rare_task(tmp_path, 10, metric="accuracy"))
    assert note.endswith("always to answer so reaches an accuracy of 95.0; task.metric: macro_f1 says more")
    assert list(describe_data(rare_task(tmp_path, 80))) == []


def test_a_label_that_dev_lacks(tmp_path):
    with pytest.raises(UserError, match=r'no row of held out(?s:.*) has the label "spam"(?s:.*)give more rows with it'):
        rare_task(tmp_path, 1, labels={"positive": "ham", "negative": "spam"})


def test_joined_labels_in_a_column_of_classes_are_noticed(tmp_path):
    texts = [text for text, _ in labelled_rows(80)]
    rows = list(zip(texts, ["a|b", "a", "b", "c|a"] * 20, strict=True))
    task = load_task(TaskConfig(train=str(write_csv(tmp_path / "a.csv", rows))), 0)  # type: ignore[arg-type]
    (note,) = describe_data(task)
    assert note.startswith('labels such as "a|b" look like several labels: here every combination is a class')
