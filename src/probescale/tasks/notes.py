"""What a user should know about the data before a run, though nothing is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

from probescale.tasks.balance import count_labels, find_dominant
from probescale.tasks.column_roles.content import Column
from probescale.tasks.task import Task

LARGE_DEV = 20_000  # rows


def describe_data(task: Task) -> Iterator[str]:
    """Sentences about rare labels, labels that look like several, a large dev set, and rows that contradict others."""
    yield from _describe_balance(task)
    yield from _describe_several(task)
    if len(task.dev) > LARGE_DEV:
        yield (
            f"every model answers all {len(task.dev):,} rows of dev; with task.max_dev: 10000 the figures come sooner, "
            "and are certain to about a point"
        )
    if task.contradictions:
        yield task.contradictions.sentence()


def _describe_balance(task: Task) -> Iterator[str]:
    dominant = find_dominant(task.train)
    if dominant is None:
        return
    label, share = dominant
    rare = len(task.dev) - count_labels(task.dev)[label]
    rows = f'{share:.1%} of the rows have the label "{label}", and {rare:,} rows of dev another'
    about = f'f1 of "{task.positive}"' if task.positive else task.metric.replace("_", " ")
    if task.metric == "accuracy":
        yield f"{rows}: always to answer so reaches an accuracy of {100 * share:.1f}; task.metric: macro_f1 says more"
    else:
        yield f"{rows}: the metric is {about}"


def _describe_several(task: Task) -> Iterator[str]:
    """Joined labels in a column of classes."""
    if task.train.kind != "class":
        return
    labels = Column("label", [task.train.names[number] for number in task.train.classes])
    if labels.form != "labels":
        return
    joined = max(task.train.names, key=lambda name: len(labels.single_labels & set(name.replace(";", "|").split("|"))))
    yield (
        f'labels such as "{joined}" look like several labels: here every combination is a class of its own; kind: '
        "labels learns them one by one"
    )
