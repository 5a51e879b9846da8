"""What a kind of task rules out, whatever the data hold: found before anything is read."""

from __future__ import annotations

from collections.abc import Iterator

from probescale.config import WORD_POOLINGS, ProbeConfig, TaskConfig
from probescale.errors import Problems, UserError
from probescale.tasks.metrics import check_metric


def check_kind(task: TaskConfig) -> None:
    """Raise Problems with all settings that do not go with the task's kind."""
    problems = [
        *_two_texts(task),
        *(fault for n, probe in enumerate(task.probes) for fault in _pooling(task, n, probe)),
    ]
    if task.kind == "number" and task.labels:
        problems.append(UserError("numbers have no labels to name", field="task.labels", hint="leave it out"))
    if task.metric is not None:
        try:
            check_metric(task.metric, task.kind)
        except UserError as error:
            problems.append(error)
    if problems:
        raise Problems(problems)


def _two_texts(task: TaskConfig) -> Iterator[UserError]:
    tagged = {"task.train": task.train, "task.dev": task.dev} if task.kind == "tags" else {}
    tagged |= {f"task.probes.{n}.data": p.data for n, p in enumerate(task.probes) if p.pooling in WORD_POOLINGS}
    for field, data in tagged.items():
        if data is not None and data.pair is not None:
            yield UserError("words are tagged in one text, not in two", field=f"{field}.pair", hint="leave it out")


def _pooling(task: TaskConfig, number: int, probe: ProbeConfig) -> Iterator[UserError]:
    """A probe without data of its own learns what the task does, from states of the same things: texts or words."""
    if probe.data is not None or probe.property is not None or probe.pooling == "auto":
        return
    field, words = f"task.probes.{number}.pooling", probe.pooling in WORD_POOLINGS
    if task.kind == "tags" and not words:
        yield UserError(
            f'"{probe.pooling}" is one state a text, but probe "{probe.name}" learns the task\'s tags, one a word',
            field=field,
            hint=f"use {' or '.join(WORD_POOLINGS)}, or leave it out",
        )
    if task.kind != "tags" and words:
        yield UserError("a token probe needs data with a tag a word", field=field, hint="add data: with a CoNLL file")
