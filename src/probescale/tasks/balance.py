"""How often each label occurs; and what follows for metric and training where nearly all rows have the same one."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from probescale.config import ClassWeights, TaskConfig
from probescale.errors import UserError
from probescale.tasks.data import Data
from probescale.tasks.metrics import METRICS

DOMINANT = 0.9  # share of the rows with one label, from which on accuracy says little about the others
_YES = ("1", "true", "yes", "positive", "pos", "y", "t")
_NOT = re.compile(r"(not|no|non|un)[\W_]*", re.IGNORECASE)


def count_labels(train: Data) -> Counter[str]:
    """How many rows each label has, the most frequent first; empty where answers have no names."""
    labels = train.row_labels
    known = labels[~np.isnan(labels)].astype(int) if train.names and labels.ndim == 1 else np.array([], int)
    rows = np.bincount(known, minlength=len(train.names)).tolist()
    return Counter(dict(sorted(zip(train.names, rows, strict=True), key=lambda one: -one[1])))


def find_dominant(train: Data) -> tuple[str, float] | None:
    """The label that nearly all rows have, and its share; None where there is none, or rows are not classes."""
    counts = count_labels(train) if train.kind == "class" else Counter()
    for label, rows in counts.most_common(1):
        share = rows / counts.total()
        return (label, share) if share >= DOMINANT else None
    return None


def choose_metric(config: TaskConfig, train: Data, usual: str) -> tuple[str, str | None]:
    """The metric, and the label that it is about, where it is about one. `usual`: what the kind of task takes."""
    metric = usual
    if config.positive is not None and train.kind != "class":
        raise UserError(
            f"a metric about one label is for tasks of kind class, and this one is of kind {train.kind}",
            field="task.positive",
            hint="leave it out",
        )
    if config.metric is None and config.positive is not None:
        metric = "f1"
    elif config.metric is None and find_dominant(train):
        return ("f1", count_labels(train).most_common()[-1][0]) if len(train.names) == 2 else ("macro_f1", None)
    if not METRICS[metric].binary:
        if config.positive is not None:
            raise UserError(
                f"{metric} is not about one label",
                field="task.positive",
                hint="leave it out, or set task.metric: f1",
            )
        return metric, None
    return metric, _find_positive(config.positive, train)


def _find_positive(given: str | None, train: Data) -> str:
    """The label that F1 is about: as given; else 1, true or yes; else the one that is not called "not ..."; else the
    rarer one."""
    names, known = train.names, ", ".join(train.names[:20])
    if given is not None and given not in names:
        raise UserError(f'no row has the label "{given}"', field="task.positive", hint=f"use one of: {known}")
    if given is not None:
        return given
    if len(names) != 2:
        raise UserError(
            f"f1 is about one label, and there are {len(names)}: {known}",
            field="task.metric",
            hint="name one with task.positive, or use macro_f1",
        )
    by_name = [name for name in names if name.casefold() in _YES]
    by_name = by_name or [name for name in names if _NOT.sub("", "".join(n for n in names if n != name), 1) == name]
    return by_name[0] if len(by_name) == 1 else count_labels(train).most_common()[-1][0]


def weigh_classes(train: Data, setting: ClassWeights) -> np.ndarray | None:
    """(classes,) the weight of each label's rows in the loss, 1 on average over all rows; None: all count alike."""
    power = {"none": 0.0, "square_root": 0.5, "balanced": 1.0}[setting]
    counts = count_labels(train)
    if not power or not counts.total():
        return None
    rows = np.array([counts[name] for name in train.names], float)
    weights = np.where(rows > 0, 1 / np.maximum(rows, 1) ** power, 1.0)
    return weights * rows.sum() / (weights @ rows)
