"""A task ready to use: its train and dev examples, its metric, and the data of each probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from probescale.config import WORD_POOLINGS, DataConfig, ProbeConfig, TaskConfig, TaskKind
from probescale.errors import UserError, lookup
from probescale.tasks.data import (
    Data,
    TaggedSentences,
    load_examples,
    load_tagged,
    sample,
    split,
    tag_rows,
    without_repeats,
)
from probescale.tasks.kinds import check_kind
from probescale.tasks.metrics import METRICS, Metric, choose_metric
from probescale.tasks.structural import PROPERTIES, load_property
from probescale.tasks.unlabelled import load_unlabelled

DEV_SHARE = 0.2  # of train, when the user has no dev data


@dataclass(frozen=True)
class Task:
    name: str
    metric: str
    train: Data  # of tags: TaggedSentences
    dev: Data
    dev_split: str  # how the report names it
    repeats: int  # training rows left out because they came before or stand in dev
    probe_data: dict[str, Data]  # what each probe learns from
    kind: TaskKind = "class"
    unlabelled: Data | None = None  # texts for a teacher to answer

    @property
    def measure(self) -> Metric:
        return METRICS[self.metric].of(self.train.names)

    @property
    def gold(self) -> np.ndarray:
        """What is right on dev: label numbers, quantities, or a tuple of tag numbers a sentence (-1: no tag)."""
        if isinstance(self.dev, TaggedSentences):
            return tag_rows(self.dev.tags)
        return np.array(self.dev.labels, np.float64 if self.kind == "number" else np.int64)

    @property
    def fingerprints(self) -> dict[str, str]:
        own = {name: data for name, data in self.probe_data.items() if data is not self.train}
        own = {f"probe {name}": data for name, data in own.items()}
        own |= {"unlabelled": self.unlabelled} if self.unlabelled else {}
        return {name: data.fingerprint for name, data in {"train": self.train, "dev": self.dev, **own}.items()}


def load_task(config: TaskConfig, seed: int) -> Task:
    """Read and check both parts. Dev is used for the final figures and for nothing else."""
    check_kind(config)
    raw = _load(config.train, "task.train", config.kind, config.labels)
    _refuse_too_few(without_repeats(raw))
    if config.dev is not None:
        dev = _load(config.dev, "task.dev", config.kind, config.labels, raw.names)
        if (raw.pairs is None) != (dev.pairs is None):
            raise UserError(
                "train and dev must both have one text a row, or both two",
                field="task.dev.pair",
                hint="set pair: in both",
            )
        train, named = without_repeats(raw, dev), "dev"
    else:
        train, dev = split(without_repeats(raw), DEV_SHARE, seed)
        named = f"held out ({DEV_SHARE:.0%} of train)"
    repeats = len(raw) - len(train) - (0 if config.dev else len(dev))
    train = sample(train, config.max_train, seed)
    _refuse_too_few(train)
    metric = choose_metric(config.metric, config.kind, train.names)
    probe_data = {probe.name: _probe_data(probe, n, train, dev, seed) for n, probe in enumerate(config.probes)}
    more = config.unlabelled and load_unlabelled(config.unlabelled, train, dev, seed, field="task.unlabelled")
    return Task(config.name, metric, train, dev, named, repeats, probe_data, config.kind, more)


def _load(
    data: DataConfig, field: str, kind: TaskKind, rename: Mapping[str, str], names: tuple[str, ...] | None = None
) -> Data:
    if kind == "tags":
        return load_tagged(data, field=field, rename=rename, names=names, repeats=True)
    return load_examples(data, field=field, rename=rename, names=names, kind=kind)


def _refuse_too_few(train: Data) -> None:
    if isinstance(train, TaggedSentences):
        found, (rows, values) = {tag for tags in train.tags for tag in tags if tag >= 0}, ("sentences", "tags")
    else:
        found, rows = set(train.labels), "rows"
        values = "different numbers" if train.kind == "number" else "classes"
    if len(train) < 10 or len(found) < 2:
        raise UserError(
            f"only {len(train)} usable training {rows} with {len(found)} {values} remain",
            field="task.train",
            hint=f"give at least 10 different texts and two {values}",
        )


def _probe_data(probe: ProbeConfig, number: int, train: Data, dev: Data, seed: int) -> Data:
    """The labelled data of one probe: made from text, its own, else the task's train part."""
    field = f"task.probes.{number}"
    if probe.property is not None:
        lookup(PROPERTIES, probe.property, field=f"{field}.property")
        return without_repeats(load_property(probe.property, probe.data, train.texts, seed, field=field), dev)
    if probe.data is not None and probe.pooling in WORD_POOLINGS:
        tagged = load_tagged(probe.data, field=f"{field}.data")
        return without_repeats(tagged, dev) if isinstance(dev, TaggedSentences) else tagged
    if probe.data is None:
        data = train
    else:
        data = without_repeats(load_examples(probe.data, field=f"{field}.data", kind=probe.target), dev)
    if probe.pooling == "sep" and data.pairs is None:
        raise UserError(
            f'probe "{probe.name}" looks at the separator between two texts, but its data has one text a row',
            field=f"{field}.pooling",
            hint="name the second text's column with pair:, or use cls or mean",
        )
    return data
