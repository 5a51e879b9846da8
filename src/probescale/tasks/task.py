"""A task ready to use: its train and dev examples, its metric, and the data of each probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probescale.config import WORD_POOLINGS, ProbeConfig, TaskConfig
from probescale.errors import UserError, lookup
from probescale.tasks.balance import choose_metric
from probescale.tasks.contradictions import Contradictions, find_contradictions
from probescale.tasks.data import Data
from probescale.tasks.kinds import Kind, find_kind
from probescale.tasks.labelled import load_examples, load_tagged
from probescale.tasks.metrics import METRICS, Metric
from probescale.tasks.passages import Embed, Passages
from probescale.tasks.sampling import sample, split, without_repeats, without_texts
from probescale.tasks.structural import PROPERTIES, load_property
from probescale.tasks.swaps import Swaps, built_in_swaps, load_swaps
from probescale.tasks.unlabelled import joined, load_unlabelled

DEV_SHARE = 0.2  # of train, when the user has no dev data
TUNING_SHARE, MOST_TUNING = 0.1, 2000  # of train, and rows at most, for the thresholds of labels


@dataclass(frozen=True)
class Task:
    """What a model learns: checked data, a kind and a metric."""

    name: str
    metric: str
    train: Data
    dev: Data
    dev_split: str  # how the report names it
    repeats: int  # training rows left out: they repeat or contradict another row, or a row of dev
    probe_data: dict[str, Data]  # what each probe learns from
    unlabelled: Data | None = None  # texts for a teacher to answer
    validation: Data | None = None  # a part of train that nothing learns from, to decide on
    tuning: Data | None = None  # another such part, on which the thresholds of labels are chosen
    positive: str | None = None  # the label that the metric is about, where it is about one
    swaps: Swaps | None = None  # texts that should be answered alike, where answers are classes of texts
    contradictions: Contradictions | None = None  # texts with different labels, in the files as they are
    second: Data | None = None  # other text, of which nothing is learned
    own_calibration: Data | None = None  # data of the user to measure layers on; None: a part of train

    @property
    def kind(self) -> Kind:
        return find_kind(self.train.kind)

    @property
    def measure(self) -> Metric:
        return METRICS[self.metric].for_names(self.train.names, self.positive)

    @property
    def calibration(self) -> Data:
        """The data on which layers are measured that no probe is trained for."""
        return self.train if self.own_calibration is None else self.own_calibration

    @property
    def gold(self) -> np.ndarray:
        """(inputs,) the right prediction for each input of dev."""
        return self.dev.gold

    @property
    def fingerprints(self) -> dict[str, str]:
        """sha256 of every part of the data, by its name."""
        parts: dict[str, Data | Swaps] = {"train": self.train, "dev": self.dev}
        parts |= {f"probe {name}": data for name, data in self.probe_data.items() if data is not self.train}
        parts |= {"unlabelled": self.unlabelled} if self.unlabelled else {}
        parts |= {"calibration": self.own_calibration} if self.own_calibration else {}
        parts |= {"second": self.second} if self.second else {}
        parts |= {"bias": self.swaps} if self.swaps and self.swaps.source else {}
        return {name: data.fingerprint for name, data in parts.items()}

    def with_validation(self, share: float, seed: int) -> Task:
        """The same task with a share of train held out, to decide on."""
        train, held_out = split(self.train, share, seed)
        held_out = self.kind.complete_dev(held_out, seed)
        data = {
            name: train if data is self.train else without_texts(data, held_out)
            for name, data in self.probe_data.items()
        }
        own = self.own_calibration and without_texts(self.own_calibration, held_out)
        return replace(self, train=train, validation=held_out, probe_data=data, own_calibration=own)

    def with_rows(self, rows: Sequence[int]) -> Task:
        """The same task with some rows of train; probes have none of the texts of the others."""
        chosen = set(rows)
        others = self.train.take([row for row in range(len(self.train)) if row not in chosen])
        train = self.train.take(rows)
        data = {
            name: train if part is self.train else without_texts(part, others) for name, part in self.probe_data.items()
        }
        return replace(self, train=train, probe_data=data)

    def with_embeddings(self, embed: Embed) -> Task:
        """The same texts with the embeddings of the original, computed where they are needed."""
        parts = {"train": self.train, "dev": self.dev, "validation": self.validation}
        parts |= {"own_calibration": self.own_calibration}
        known = {name: replace(part, embed=embed) for name, part in parts.items() if isinstance(part, Passages)}
        data = {name: known["train"] if part is self.train else part for name, part in self.probe_data.items()}
        return replace(self, **known, probe_data=data)

    def with_names(self, names: tuple[str, ...]) -> Task:
        """The same task with its labels in another order: that of a model which was trained for them."""
        if names == self.train.names:
            return self
        train = self.train.with_names(names)
        return replace(
            self,
            train=train,
            dev=self.dev.with_names(names),
            tuning=self.tuning and self.tuning.with_names(names),
            own_calibration=self.own_calibration and self.own_calibration.with_names(names),
            probe_data={name: train if data is self.train else data for name, data in self.probe_data.items()},
            unlabelled=self.unlabelled and self.unlabelled.with_names(names),
        )


def load_task(config: TaskConfig, seed: int) -> Task:
    """Read, check and split a task's data. Dev is for the final figures."""
    kind = find_kind(config.kind)
    kind.check(config)
    raw = kind.load(config.train, field="task.train", rename=config.labels)
    kind.refuse_too_few(without_repeats(raw))
    if config.dev is not None:
        dev = kind.load(config.dev, field="task.dev", rename=config.labels, names=raw.names)
        if (raw.pairs is None) != (dev.pairs is None):
            raise UserError(
                "train and dev must both have one text per row, or both have two",
                field="task.dev.pair",
                hint="set pair: in both",
            )
        train = without_repeats(raw, dev)  # of all its rows, also of those that are not drawn
        dev_split = "dev" if len(dev) <= (config.max_dev or len(dev)) else f"dev (drawn from {len(dev):,})"
        dev = kind.draw(dev, config.max_dev, seed)
    else:
        rows = without_repeats(raw)
        held_out = min(max(1, round(DEV_SHARE * len(rows))), config.max_dev or len(rows))
        train, dev = split(rows, held_out, seed)
        dev_split = f"held out ({held_out / len(rows):.0%} of train)"
    second = config.second and kind.load(config.second, field="task.second")
    train, second = (without_texts(train, second), sample(second, config.max_dev, seed)) if second else (train, None)
    calibration = _load_calibration(config, kind, raw, dev)
    repeats = len(raw) - len(train) - (0 if config.dev else len(dev))
    contradictions = find_contradictions(raw, dev if config.dev else None) if kind.labelled else None
    dev = kind.complete_dev(dev, seed)
    train, tuning = kind.draw(train, config.max_train, seed), None
    if kind.thresholds:
        train, tuning = split(train, min(max(round(TUNING_SHARE * len(train)), 1), MOST_TUNING), seed)
    kind.refuse_too_few(train)
    metric, positive = choose_metric(config, train, kind.metric_for(config.metric, train, dev))
    if positive and train.names.index(positive) not in dev.classes:
        raise UserError(
            f'no row of {dev_split} has the label "{positive}", which the metric is about',
            field="task.dev",
            hint="give more rows with it, or choose another metric: task.metric",
        )
    probe_data = {probe.name: _load_probe_data(probe, n, train, dev, seed) for n, probe in enumerate(config.probes)}
    unseen = joined(dev, tuning)
    unlabelled = config.unlabelled and load_unlabelled(config.unlabelled, train, unseen, seed, field="task.unlabelled")
    swaps = None
    if kind.bias_pairs:
        own, paired = config.bias, train.pairs is not None
        swaps = load_swaps(own, paired=paired, field="task.bias") if own else built_in_swaps()
    return Task(
        config.name,
        metric,
        train,
        dev,
        dev_split,
        repeats,
        probe_data,
        unlabelled,
        tuning=tuning,
        positive=positive,
        swaps=swaps,
        contradictions=contradictions,
        second=second,
        own_calibration=calibration,
    )


def count_with_tuning(rows: int) -> int:
    """How many labelled rows to draw, so that this many are left for training beside those for thresholds.

    >>> count_with_tuning(900), count_with_tuning(50_000)
    (1000, 52000)
    """
    return min(round(rows / (1 - TUNING_SHARE)), rows + MOST_TUNING)


def _load_calibration(config: TaskConfig, kind: Kind, train: Data, dev: Data) -> Data | None:
    """The user's own data to measure layers on, without rows of dev."""
    if config.calibration is None:
        return None
    own = kind.load(config.calibration, field="task.calibration", rename=config.labels, names=train.names)
    own = without_texts(own, dev)
    if not len(own):
        raise UserError("all its rows are in dev", field="task.calibration", hint="give other data, or leave it out")
    return own


def _load_probe_data(probe: ProbeConfig, number: int, train: Data, dev: Data, seed: int) -> Data:
    """The labelled data of one probe: derived from texts, from its own source, or else the task's train data."""
    field = f"task.probes.{number}"
    if probe.property is not None:
        lookup(PROPERTIES, probe.property, field=f"{field}.property")
        labelled = load_property(probe.property, probe.data, train.texts, seed, field=field, dev=dev)
        return without_repeats(labelled, dev)
    if probe.data is not None and probe.pooling in WORD_POOLINGS:
        return without_repeats(load_tagged(probe.data, field=f"{field}.data"), dev)
    if probe.data is None:
        data = train
    else:
        data = without_repeats(load_examples(probe.data, field=f"{field}.data", target=probe.target), dev)
    if probe.pooling == "sep" and data.pairs is None:
        raise UserError(
            f'probe "{probe.name}" looks at the separator between two texts, but its data has one text per row',
            field=f"{field}.pooling",
            hint="name the second text's column with pair:, or use cls or mean",
        )
    return data
