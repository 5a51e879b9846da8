"""What the package asks of a kind of task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from probescale.config import WORD_POOLINGS, DataConfig, Head, ProbeConfig, RunConfig, TaskConfig
from probescale.errors import Problems, UserError, lookup
from probescale.tasks.data import Data
from probescale.tasks.kinds.losses import Loss
from probescale.tasks.metrics import METRICS
from probescale.tasks.sampling import sample

FEWEST = 10  # training rows


@dataclass(frozen=True)
class Rendered:
    """A prediction for one text, in the forms in which it is written."""

    fields: dict[str, Any]  # of a line of JSON, named as the kind's `answers`
    cell: str | float  # of a CSV file, in the column of the first of `answers`
    shown: str  # in a table for reading
    probability: float | None = None


class Kind(ABC):
    """A kind of task: how its rows are read, which head answers them, and how answers are trained, decoded and shown.

    A row of answers is one vector of logits: of a text, or of a word where `unit` says so. A new kind is one file: a
    subclass with the decorator `task_kind`.
    """

    name: ClassVar[str]  # given by `task_kind`
    # The model
    head: ClassVar[Head]  # the stock head that answers
    problem_type: ClassVar[str | None] = None  # in the model's config; None: the head's own
    unit: ClassVar[Literal["text", "word", "token"]] = "text"  # what a row of answers belongs to
    own_head: ClassVar[bool] = False  # the checkpoint's own head answers: the original needs no training
    outputs: ClassVar[tuple[str, str]] = ("logits are", "logits")  # of a text, with their verb; and their name in code
    # Training
    loss: ClassVar[Loss]
    standardised: ClassVar[bool] = False  # labels are learned with mean 0 and spread 1
    encodes: ClassVar[bool] = False  # answers are vectors: those of the original, as it is, are learned
    thresholds: ClassVar[bool] = False  # a part of train is held out, to choose from which logit on a label is given
    # Evaluation
    metrics: ClassVar[tuple[str, ...]] = ()  # that fit beside those registered for this kind
    alternatives: ClassVar[bool] = True  # simpler models can do the same, such as a bag of words
    bias_pairs: ClassVar[bool] = False  # texts that should be answered alike are compared
    # Words
    pipeline_tag: ClassVar[str]  # of the hub and of transformers.pipeline
    labelled: ClassVar[bool] = True  # rows have labels
    library: ClassVar[str] = "transformers"  # that loads the model
    named: ClassVar[bool] = True  # answers have names: labels or tags
    rows_called: ClassVar[str] = "rows"
    values_called: ClassVar[str] = "classes"
    answers: ClassVar[tuple[str, ...]] = ("label", "probability", "probabilities")  # fields of a prediction
    # Settings
    defaults: ClassVar[Mapping[str, Any]] = {}  # by dotted key: those that are others for this kind
    unfit_strategies: ClassVar[tuple[str, ...]] = ()  # that need labels, where texts have none
    strategy_hint: ClassVar[str] = ""  # which to use instead

    # Reading

    @abstractmethod
    def load(
        self,
        data: DataConfig,
        *,
        field: str,
        rename: Mapping[str, str] | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Data:
        """Checked rows, repeats included. For dev, `names` are the labels of train, and other labels are errors."""

    @abstractmethod
    def check_rows(self, data: DataConfig, *, field: str) -> object:
        """Read the rows and raise what is wrong with them, whatever labels train has."""

    def check(self, task: TaskConfig) -> None:
        """Raise Problems with all settings that do not fit this kind, before anything is read."""
        if problems := list(self.faults(task)):
            raise Problems(problems)

    def faults(self, task: TaskConfig) -> Iterator[UserError]:
        yield from _pair_faults(task, tagged=self.unit == "word")
        for number, probe in enumerate(task.probes):
            yield from self._pooling_faults(probe, field=f"task.probes.{number}.pooling")
        if task.labels and not self.named:
            yield UserError(
                f"answers of kind {self.name} have no labels to name", field="task.labels", hint="leave it out"
            )
        if task.bias is not None and not self.bias_pairs:
            yield UserError(
                f"pairs are compared by their labels, and tasks of kind {self.name} have none per text",
                field="task.bias",
                hint="leave it out",
            )
        for name in ("second", "harness"):
            if getattr(task, name) and self.unit != "token":
                yield UserError(
                    f"is for generative models, and this task is of kind {self.name}",
                    field=f"task.{name}",
                    hint="leave it out",
                )
        if task.metric is not None:
            try:
                self.check_metric(task.metric)
            except UserError as error:
                yield error

    def run_faults(self, config: RunConfig) -> Iterator[UserError]:
        """What does not fit this kind in the rest of a configuration."""
        chosen = {"selection.strategy": config.selection.strategy}
        chosen |= {f"compare.{number}": name for number, name in enumerate(config.compare) if isinstance(name, str)}
        for field, name in chosen.items():
            if name in self.unfit_strategies:
                yield UserError(f"{name} needs labels, and texts have none", field=field, hint=self.strategy_hint)

    def check_run(self, config: RunConfig) -> None:
        """Raise Problems with all settings of a run that do not fit this kind."""
        problems = list(self.run_faults(config))
        if config.recovery.dimensions and not self.encodes:
            allowed = "leave it out, or set task.kind: embedding"
            problems.append(UserError("only embeddings have dimensions", field="recovery.dimensions", hint=allowed))
        if problems:
            raise Problems(problems)

    def _pooling_faults(self, probe: ProbeConfig, *, field: str) -> Iterator[UserError]:
        """A probe without its own data learns the task's labels, from states of the same units."""
        if probe.data is not None or probe.property is not None or probe.pooling == "auto":
            return
        by_word = probe.pooling in WORD_POOLINGS
        if self.unit == "word" and not by_word:
            yield UserError(
                f'"{probe.pooling}" gives one state per text, but probe "{probe.name}" learns the task\'s labels, '
                "one per word",
                field=field,
                hint=f"use {' or '.join(WORD_POOLINGS)}, or leave it out",
            )
        if self.unit == "text" and by_word:
            yield UserError(
                "a token probe needs data with one tag per word", field=field, hint="add data: with a CoNLL file"
            )

    def refuse_too_few(self, train: Data) -> None:
        labels = train.row_labels
        different = len(np.unique(labels[~np.isnan(labels)]))
        if len(train) < FEWEST or different < 2:
            raise UserError(
                f"only {len(train)} usable training {self.rows_called} with {different} {self.values_called} remain",
                field="task.train",
                hint=f"give at least {FEWEST} different texts and two {self.values_called}",
            )

    # Metrics

    @abstractmethod
    def default_metric(self, names: tuple[str, ...]) -> str:
        """The metric that is used where the configuration names none."""

    @property
    def fitting_metrics(self) -> tuple[str, ...]:
        return tuple(name for name, metric in METRICS.items() if metric.kind == self.name or name in self.metrics)

    def check_metric(self, name: str) -> None:
        metric = lookup(METRICS, name, field="task.metric")
        if name not in self.fitting_metrics:
            raise UserError(
                f'"{name}" is for tasks of kind {metric.kind}, and this one is of kind {self.name}',
                field="task.metric",
                hint=f"use one of: {', '.join(self.fitting_metrics)}",
            )

    def choose_metric(self, name: str | None, names: tuple[str, ...]) -> str:
        """The metric of the configuration, if the labels allow it; else the default."""
        return name or self.default_metric(names)

    def metric_for(self, name: str | None, train: Data, dev: Data) -> str:
        """The metric of the configuration, or the default for these data."""
        return self.choose_metric(name, train.names)

    def draw(self, data: Data, most: int | None, seed: int) -> Data:
        """At most so many inputs; None: all."""
        return sample(data, most, seed)

    def complete_dev(self, dev: Data, seed: int) -> Data:
        """The dev data with what its metric needs beyond its rows."""
        return dev

    # Answers

    @abstractmethod
    def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(inputs,) predictions from (rows, columns) logits, NaN for rows that were not answered.

        `starts`, (inputs + 1,), has the first row of every input.
        """

    def answer(self, logits: np.ndarray, starts: np.ndarray, data: Data) -> np.ndarray:
        """(inputs,) the predictions for data; for kinds whose predictions are about several inputs, (pairs,)."""
        return self.decode(logits, starts)

    def right(self, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray | None:
        """(inputs,) which predictions are right; None where predictions are only near or far."""
        return gold == predicted

    def slices(self, gold: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Parts of dev that regressions are counted in, beside those by text: name -> mask of the inputs."""
        return {}

    def compare(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) whether two answers differ, and how far, from 0 to 1; (rows, columns) as `mean` gives them."""
        return one.argmax(1) != other.argmax(1), np.abs(one - other).sum(1) / 2

    def mean(self, logits: np.ndarray) -> np.ndarray:
        """(rows, columns) what logits stand for: the probabilities of the classes, or the number itself."""
        import torch

        return self.loss.mean(torch.from_numpy(logits)).numpy()

    @abstractmethod
    def show(self, prediction: Any, names: tuple[str, ...]) -> str:  # noqa: ANN401 - an entry of `decode`
        """A prediction as a cell of predictions.csv."""

    def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
        """What (rows, columns) logits say of one text; NaN for words beyond the length limit."""
        raise NotImplementedError(f"tasks of kind {self.name} are not answered by logits alone")

    # Use

    @abstractmethod
    def pipeline_call(self, names: tuple[str, ...]) -> str:
        """A line of Python that makes a transformers pipeline of the folder `model`."""

    @property
    def pipeline_import(self) -> str:
        """The import that this line needs."""
        return "from transformers import pipeline"

    @property
    def usage_note(self) -> str:
        """What a user of that pipeline has to know."""
        return ""


def _pair_faults(task: TaskConfig, *, tagged: bool) -> Iterator[UserError]:
    """Words are tagged in one text: neither tagged task data nor a word probe's data can name a second one."""
    sections: dict[str, DataConfig | None] = {"task.train": task.train, "task.dev": task.dev} if tagged else {}
    sections |= {f"task.probes.{n}.data": p.data for n, p in enumerate(task.probes) if p.pooling in WORD_POOLINGS}
    for field, data in sections.items():
        if data is not None and data.pair is not None:
            yield UserError("words are tagged in one text, not in two", field=f"{field}.pair", hint="leave it out")
