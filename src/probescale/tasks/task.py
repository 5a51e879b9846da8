"""A task ready to use: its train and dev examples, its metric, and the data of each probe."""

from __future__ import annotations

from dataclasses import dataclass

from probescale.config import WORD_POOLINGS, ProbeConfig, TaskConfig
from probescale.errors import UserError, lookup
from probescale.tasks.data import (
    Examples,
    TaggedSentences,
    load_examples,
    load_tagged,
    sample,
    split,
    without_repeats,
)
from probescale.tasks.metrics import METRICS, Metric
from probescale.tasks.structural import PROPERTIES, load_property

DEV_SHARE = 0.2  # of train, when the user has no dev data


@dataclass(frozen=True)
class Task:
    name: str
    metric: str
    train: Examples
    dev: Examples
    dev_split: str  # how the report names it
    repeats: int  # training rows left out because they came before or stand in dev
    probe_data: dict[str, Examples | TaggedSentences]  # what each probe learns from

    @property
    def measure(self) -> Metric:
        return METRICS[self.metric]

    @property
    def fingerprints(self) -> dict[str, str]:
        own = {name: data for name, data in self.probe_data.items() if data is not self.train}
        own = {f"probe {name}": data for name, data in own.items()}
        return {name: data.fingerprint for name, data in {"train": self.train, "dev": self.dev, **own}.items()}


def load_task(config: TaskConfig, seed: int) -> Task:
    """Read and check both parts. Dev is used for the final figures and for nothing else."""
    lookup(METRICS, config.metric, field="task.metric")
    raw = load_examples(config.train, field="task.train", rename=config.labels)
    _refuse_too_few(without_repeats(raw))
    if config.dev is not None:
        dev = load_examples(config.dev, field="task.dev", rename=config.labels, names=raw.names)
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
    probe_data = {probe.name: _probe_data(probe, n, train, dev, seed) for n, probe in enumerate(config.probes)}
    return Task(config.name, config.metric, train, dev, named, repeats, probe_data)


def _refuse_too_few(train: Examples) -> None:
    if len(train) < 10 or len(set(train.labels)) < 2:
        raise UserError(
            f"only {len(train)} usable training rows in {len(set(train.labels))} classes remain",
            field="task.train",
            hint="give at least 10 different texts and two classes",
        )


def _probe_data(
    probe: ProbeConfig, number: int, train: Examples, dev: Examples, seed: int
) -> Examples | TaggedSentences:
    """The labelled data of one probe: made from text, its own, else the task's train part."""
    field = f"task.probes.{number}"
    if probe.property is not None:
        lookup(PROPERTIES, probe.property, field=f"{field}.property")
        return without_repeats(load_property(probe.property, probe.data, train.texts, seed, field=field), dev)
    if probe.pooling in WORD_POOLINGS:
        if probe.data is None:
            raise UserError(
                "a token probe needs data with a tag a word", field=field, hint="add data: with a CoNLL file"
            )
        return load_tagged(probe.data, field=f"{field}.data")
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
