"""Several labels per text: how they are read, measured and split."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score

from probescale.config import DataConfig, TaskConfig
from probescale.errors import UserError
from probescale.recovery.thresholds import choose_thresholds
from probescale.tasks.data import Examples, tuple_rows
from probescale.tasks.kinds import find_kind
from probescale.tasks.metrics import METRICS
from probescale.tasks.task import load_task

TEXTS = [f"text number {n} of some" for n in range(40)]


def load(path, cells, **settings) -> Examples:
    named = [cell if isinstance(cell, dict) else {"label": cell} for cell in cells]
    rows = [{"text": TEXTS[number], **cell} for number, cell in enumerate(named)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = find_kind("labels").load(DataConfig(source=str(path), **settings), field="task.train")
    assert isinstance(found, Examples)
    return found


def configure(train, **settings) -> TaskConfig:
    return TaskConfig.model_validate({"kind": "labels", "train": str(train), **settings})


def test_lists_texts_and_columns_are_the_same_labels(tmp_path):
    lists = load(tmp_path / "a.jsonl", [["b", "a"], ["a"], [], ["c", "b"]] * 10)
    texts = load(tmp_path / "b.jsonl", ["b|a", "a", "", "c | b"] * 10)
    flags = [{"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 0}, {"a": 0, "b": "yes", "c": 1}]
    columns = load(tmp_path / "c.jsonl", flags * 10, label=("a", "b", "c"))
    assert lists.names == ("a", "b", "c")
    assert lists.labels[:4] == ((0, 1), (0,), (), (1, 2))
    assert lists == texts == columns
    assert lists.gold[0] == (1, 1, 0)
    assert lists.row_labels.shape == (40, 3)
    assert lists.with_names(("c", "b", "a")).labels[3] == (0, 1)


def test_a_comma_within_a_label(tmp_path):
    assert load(tmp_path / "a.jsonl", ["health, sport|news", "news"] * 20).names == ("health, sport", "news")
    assert load(tmp_path / "b.jsonl", ["health, sport", "news"] * 20).names == ("health", "news", "sport")


@pytest.mark.parametrize(
    ("cells", "settings", "says"),
    [
        ([""] * 40, {}, 'column "label" holds no label'),
        ([[]] * 40, {}, 'column "label" holds no label'),
        ([{"a": 0, "b": n % 2} for n in range(40)], {"label": ("a", "b")}, 'no text has the label "a"'),
        ([{"a": 3, "b": 1}] * 40, {"label": ("a", "b")}, 'column "a" has 3 in row 1: a column per label holds 0 and 1'),
        ([{"label": {"a": 1}}] * 40, {}, "holds no labels in row 1"),
        ([["only"], []] * 20, {}, 'one class only: "only"'),
    ],
)
def test_labels_that_cannot_be_used(tmp_path, cells, settings, says):
    with pytest.raises(UserError, match=r"^task\.train\.label: ") as error:
        load(tmp_path / "a.jsonl", cells, **settings)
    assert says in str(error.value)


def test_a_label_that_only_dev_has(tmp_path):
    load(tmp_path / "train.jsonl", [["a"], ["a", "b"], []] * 13)
    load(tmp_path / "dev.jsonl", [["a"], ["z"]] * 10)
    task = configure(tmp_path / "train.jsonl", dev=str(tmp_path / "dev.jsonl"))
    with pytest.raises(UserError, match='label "z" in label 2 does not occur in train'):
        load_task(task, 0)


def test_thresholds_have_rows_of_their_own(tmp_path):
    load(tmp_path / "train.jsonl", [["a"], ["a", "b"], [], ["b"]] * 10)
    task = load_task(configure(tmp_path / "train.jsonl"), 0)
    parts = [set(part.texts) for part in (task.train, task.tuning, task.dev) if part is not None]
    assert list(map(len, parts)) == [29, 3, 8]
    assert len(set.union(*parts)) == 40
    assert task.metric == "micro_f1"
    with pytest.raises(UserError, match=r"task\.positive"):
        load_task(configure(tmp_path / "train.jsonl", positive="a"), 0)


def test_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    gold = (rng.random((200, 5)) < (0.5, 0.3, 0.1, 0.05, 0.2)).astype(float)
    scores = gold + rng.normal(0, 1, gold.shape) - 0.7
    rows = [tuple_rows([tuple(row) for row in table.tolist()]) for table in (gold, scores)]
    assert METRICS["micro_f1"](*rows) == pytest.approx(f1_score(gold, scores > 0, average="micro"))
    assert METRICS["label_f1"](*rows) == pytest.approx(f1_score(gold, scores > 0, average="macro"))
    assert METRICS["average_precision"](*rows) == pytest.approx(average_precision_score(gold, scores))
    kind = find_kind("labels")
    right = kind.right(*rows)
    assert right is not None
    assert right.tolist() == ((gold > 0) == (scores > 0)).all(1).tolist()
    assert kind.show((1, -2.0, 0.5), ("a", "b", "c")) == "a|c"


@pytest.mark.parametrize(("macro", "average"), [(False, "micro"), (True, "macro")])
def test_thresholds_raise_f1(macro, average):
    rng = np.random.default_rng(1)
    labels = (rng.random((2000, 4)) < (0.5, 0.2, 0.05, 0.002)).astype(float)
    logits = 2 * labels + rng.normal(0, 1, labels.shape) - (4, -2, 1, 0)
    chosen = choose_thresholds(logits, labels, macro=macro)
    tuned = f1_score(labels, logits > chosen, average=average)
    best = max(f1_score(labels, logits > x, average=average) for x in np.linspace(-5, 5, 41))
    assert tuned > best + 0.05, "one threshold for all is not enough here"
