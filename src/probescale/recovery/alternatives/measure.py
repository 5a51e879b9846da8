"""Do I need a transformer at all? Simpler models, trained and evaluated on the data of the run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probescale.models.loading import LoadedModel
from probescale.recovery.alternatives.bag_of_words import fit_bag_of_words
from probescale.recovery.alternatives.frozen_encoder import MOST_TEXTS, fit_frozen_encoder
from probescale.recovery.alternatives.lessons import LessonSource
from probescale.recovery.alternatives.simple_model import SimpleModel
from probescale.recovery.alternatives.static_embeddings import fit_static_embeddings
from probescale.recovery.alternatives.static_encoder import measure_static_encoder
from probescale.recovery.alternatives.timing import compare_times
from probescale.recovery.result import Alternative, EvaluatedModel
from probescale.recovery.thresholds import choose_thresholds
from probescale.tasks.data import Data
from probescale.tasks.intervals import interval
from probescale.tasks.task import Task
from probescale.utils.progress import spinner


def measure_alternatives(
    task: Task,
    unlabelled: Data | None,
    teacher_logits: np.ndarray | None,
    original: EvaluatedModel,
    loaded: LoadedModel,
    *,
    max_length: int,
    seed: int,
    most_texts: int = MOST_TEXTS,
    class_weights: np.ndarray | None = None,
) -> tuple[Alternative, ...]:
    """What simpler models reach on dev: a bag of words, the frozen encoder, and static embeddings where installed.

    They learn the gold labels of train and the teacher's answers to the unlabelled texts. `teacher_logits`: (rows,
    classes) on the rows of train, followed by those of `unlabelled`; without them only the labels are learned.
    `loaded` is the pre-trained model; at most so many labelled texts as `most_texts`, and as many others, go through
    it. `class_weights`: of the other models' loss. Static embeddings take minutes and are measured only where the
    extra `static` is installed. Values are the same for the same seed; times are not.
    """
    if task.kind.encodes:
        return measure_static_encoder(task, original, loaded, max_length=max_length, seed=seed)
    source = LessonSource(task.train, unlabelled, teacher_logits, seed)
    return tuple(
        _evaluate(model, task, original, loaded, max_length, seed, class_weights)
        for model in _fit_all(source, loaded, max_length, most_texts)
    )


def _fit_all(source: LessonSource, loaded: LoadedModel, max_length: int, most_texts: int) -> Iterator[SimpleModel]:
    """One after the other, so that only one of them is in memory."""
    with spinner("alternatives: bag of words"):
        bag_of_words = fit_bag_of_words(source)
    yield bag_of_words
    yield fit_frozen_encoder(source, loaded, max_length, most_texts)
    if static := fit_static_embeddings(source, loaded):
        yield static


def _evaluate(
    model: SimpleModel,
    task: Task,
    original: EvaluatedModel,
    loaded: LoadedModel,
    max_length: int,
    seed: int,
    class_weights: np.ndarray | None,
) -> Alternative:
    predicted = model.predict(task.dev, _choose_shift(model, task, class_weights))
    value = task.measure(task.gold, predicted)
    speed = compare_times(model.answer, loaded, task.dev, max_length, seed)
    return Alternative(
        name=model.name,
        value=value,
        interval=interval(task.measure, task.gold, predicted, seed),
        retention=task.measure.retention(value, original.value),
        params=model.params,
        milliseconds=speed.milliseconds,
        speedup=speed.speedup,
        spread=speed.spread,
    )


def _choose_shift(model: SimpleModel, task: Task, class_weights: np.ndarray | None) -> np.ndarray | None:
    """What is added to logits: the weights of the other models' loss, or their way to choose thresholds."""
    if task.tuning is None:
        return None if class_weights is None else np.log(class_weights)
    macro = task.metric == "label_f1"
    return -choose_thresholds(model.logits(task.tuning), task.tuning.row_labels, macro=macro)
