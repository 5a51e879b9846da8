"""What simple models learn: the gold labels of train, and the teacher's answers to unlabelled texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probescale.config import ProbeTarget
from probescale.probing.probes import Probe
from probescale.probing.probes.closed_form import LinearFit
from probescale.probing.targets import ProbeLabels
from probescale.tasks.data import Data
from probescale.tasks.sampling import split_rows
from probescale.tasks.unlabelled import joined

TUNING_SHARE = 0.2  # of the labelled inputs; the penalty is chosen on them


@dataclass(frozen=True)
class Lessons:
    """Inputs with the answers to learn. A row is one answer: of a text, or of a word."""

    data: Data  # labelled inputs, followed by unlabelled ones
    answers: ProbeLabels  # of every row
    answered: np.ndarray  # (rows,) which rows have an answer
    tuning: np.ndarray  # (rows,) rows with gold labels on which penalties are compared

    def fit(self, probe: Probe[LinearFit], features: np.ndarray, penalties: tuple[float, ...]) -> LinearFit:
        """The probe with the best penalty on the tuning rows, fitted to all answered rows of the features."""
        fit, tuning = self.answered & ~self.tuning, self.answered & self.tuning
        if not tuning.any():  # a few sentences with hardly any tag
            fit = tuning = self.answered
        answers = self.answers
        best = probe.fit_path(features[fit], answers[fit], penalties, (features[tuning], answers[tuning]))
        return probe.fit(features[self.answered], answers[self.answered], best.penalty, best)


@dataclass(frozen=True)
class LessonSource:
    """All that could be learned; each alternative draws as much of it as it can use."""

    train: Data
    unlabelled: Data | None
    teacher_logits: np.ndarray | None  # (rows, classes) on the rows of train, followed by those of `unlabelled`
    seed: int

    def draw(self, most_labelled: int | None, most_unlabelled: int) -> Lessons:
        """At most so many rows with gold labels and with the teacher's answers, in whole inputs; None: all of them."""
        train = self.train.take(_draw_inputs(self.train, most_labelled, self.seed).tolist())
        values, answered = _gold_values(train)
        _, held_out = split_rows(train.classes, TUNING_SHARE, self.seed)
        tuning = np.isin(_input_of_rows(train), held_out)
        data = train
        if self.unlabelled is not None and self.teacher_logits is not None:
            more, more_values, more_answered = self._taught(self.unlabelled, self.teacher_logits, most_unlabelled)
            data = joined(train, more)
            values = np.concatenate([values, more_values.astype(values.dtype)])
            answered = np.concatenate([answered, more_answered])
            tuning = np.concatenate([tuning, np.zeros(len(more_answered), bool)])
        return Lessons(data, ProbeLabels(train.target, values, train.names), answered, tuning)

    def _taught(self, unlabelled: Data, logits: np.ndarray, most: int) -> tuple[Data, np.ndarray, np.ndarray]:
        """Unlabelled inputs, the teacher's answers to their rows, and which rows it answered."""
        drawn = _draw_inputs(unlabelled, most, self.seed)
        answers = logits[int(self.train.rows_per_input.sum()) :]
        answers = answers[np.isin(_input_of_rows(unlabelled), drawn)]
        answered = ~np.isnan(answers[:, 0])  # words beyond the length limit have no answer
        values = _hard_answers(unlabelled.target, np.nan_to_num(answers))
        return unlabelled.take(drawn.tolist()), values, answered


def _draw_inputs(data: Data, most: int | None, seed: int) -> np.ndarray:
    """Numbers of the inputs, in order; with `most`, of a random part of them that has at most so many rows."""
    if most is None or data.rows_per_input.sum() <= most:
        return np.arange(len(data))
    order = np.random.default_rng(seed).permutation(len(data))
    return np.sort(order[np.cumsum(data.rows_per_input[order]) <= most])


def _input_of_rows(data: Data) -> np.ndarray:
    """(rows,) the number of the input that each row belongs to."""
    return np.repeat(np.arange(len(data)), data.rows_per_input)


def _gold_values(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The label of every row, and which rows have one."""
    inputs, words = data.units
    starts = np.cumsum(data.rows_per_input) - data.rows_per_input
    answered = np.zeros(int(data.rows_per_input.sum()), bool)
    answered[starts[inputs] + words] = True
    return data.values_at(*data.fully_labelled().units), answered


def _hard_answers(target: ProbeTarget, logits: np.ndarray) -> np.ndarray:
    """The answers that logits stand for, in the form of `ProbeLabels.values`."""
    if target == "class":
        return logits.argmax(1)
    return logits > 0 if target == "multi" else logits[:, 0]
