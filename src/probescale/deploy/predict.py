"""Predict labels with probabilities for a stream of texts; memory does not grow with the number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from probescale.deploy.continuations import Prompter, WritingOptions
from probescale.deploy.inference import InferenceModel, compute_logits
from probescale.deploy.texts import Line
from probescale.errors import UserError
from probescale.models.memory import BatchSplitter
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import Data, Examples, TaggedSentences
from probescale.tasks.kinds import Kind, Rendered

EMPTY = "the tokenizer reads nothing in this text"
CHUNK = 1024  # lines read at once, so that texts of like length share a batch


@dataclass(frozen=True)
class Prediction:
    """The prediction for one line, or why there is none."""

    number: int
    text: str
    rendered: Rendered | None = None
    fault: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)  # what else stands in the line; empty for a plain line

    def record(self) -> dict[str, Any]:
        """The fields of a line of JSON: what stands in the line, and the answer."""
        answer = {**(self.rendered.fields if self.rendered else {}), **({"fault": self.fault} if self.fault else {})}
        return {"line": self.number, **(self.row or ({"text": self.text} if self.text else {})), **answer}


def require_kind(model: InferenceModel) -> Kind:
    """The kind of task that a model answers; an error for one without a head."""
    if model.kind is None:
        raise UserError(
            f"{model.name} has no head: it gives states, no labels",
            field="MODEL",
            hint="use the model of a run, or one with a classification head",
        )
    return model.kind


def predict_lines(
    model: InferenceModel,
    lines: Iterable[Line],
    max_length: int | None = None,
    writing: WritingOptions | None = None,
) -> Iterator[Prediction]:
    """Predictions in the order of the lines. Texts are cut where training cut them, unless another length is given.

    `writing`: how a model that writes texts goes on with them; refused for others.
    """
    kind = require_kind(model)
    if kind.unit == "token" and model.write is None:
        raise UserError(
            f"{model.name} is a file for llama.cpp, which writes texts with it",
            field="MODEL",
            hint="give the run's folder, or use llama.cpp",
        )
    if model.write and max_length:
        raise UserError(
            f"{model.name} goes on with whole texts, which are not cut",
            field="--max-length",
            hint="leave it out; --new-tokens says how much is written",
        )
    if model.write:
        return _continue_lines(model, kind, lines, writing or WritingOptions())
    if writing:
        raise UserError(
            f"{model.name} answers with {kind.answers[0]}s: it writes no texts",
            field="--chat" if writing.chat else "--new-tokens",
            hint="leave it out, or give a generative model",
        )
    return _answer_lines(model, kind, lines, max_length)


def _continue_lines(
    model: InferenceModel, kind: Kind, lines: Iterable[Line], options: WritingOptions
) -> Iterator[Prediction]:
    """What a generative model writes after every line."""
    prompter = Prompter(model, options)
    for line in (_free_names(line, kind.answers) for line in lines):
        rendered, fault = (None, line.fault) if line.fault else prompter.go_on(line)
        yield Prediction(line.number, line.text, rendered, fault, line.row)


def _answer_lines(
    model: InferenceModel, kind: Kind, lines: Iterable[Line], max_length: int | None
) -> Iterator[Prediction]:
    limit = min(max_length or model.trained_length or model.max_length, model.max_length)
    rest, splitter = (_free_names(line, kind.answers) for line in lines), BatchSplitter()
    while chunk := list(islice(rest, CHUNK)):
        good = [line for line in chunk if not line.fault]
        answers = _predict_chunk(model, kind, good, limit, splitter) if good else []
        by_number = {answer.number: answer for answer in answers}
        for line in chunk:
            yield by_number.get(line.number) or Prediction(line.number, line.text, fault=line.fault, row=line.row)


def _free_names(line: Line, answers: Sequence[str]) -> Line:
    """The line without columns that are called like an answer: `label` becomes `input_label`."""
    taken = {"line", "fault", *answers}
    if not taken & line.row.keys():
        return line
    names = dict.fromkeys(taken & line.row.keys(), "")
    for name in names:
        names[name] = f"input_{name}"
        while names[name] in line.row:
            names[name] = f"input_{names[name]}"
    return replace(line, row={names.get(name, name): value for name, value in line.row.items()})


def _predict_chunk(
    model: InferenceModel, kind: Kind, lines: list[Line], limit: int, splitter: BatchSplitter
) -> list[Prediction]:
    inputs = build_inputs(model.tokenizer, _read_as_data(model, kind, lines), limit)
    if empty := {lines[place].number for place in np.flatnonzero(inputs.tokens.lengths == 0)}:
        unread = [
            Prediction(line.number, line.text, fault=EMPTY, row=line.row) for line in lines if line.number in empty
        ]
        rest = [line for line in lines if line.number not in empty]
        return unread + (_predict_chunk(model, kind, rest, limit, splitter) if rest else [])
    numbers = np.array([line.number - 1 for line in lines])
    logits = compute_logits(model, inputs, splitter, numbers)
    return [
        _answer(model, kind, line, logits[first:end], [row - first for _, row in places])
        for line, (first, end), places in zip(
            lines, pairwise(inputs.starts), inputs.places or [[]] * len(lines), strict=True
        )
    ]


def _answer(model: InferenceModel, kind: Kind, line: Line, logits: np.ndarray, words: list[int]) -> Prediction:
    """What (rows, columns) logits say of a line; `words`, of a tagger: the rows within the length limit."""
    if not np.isfinite(logits[words] if kind.unit == "word" else logits).all():
        fault = "the model's answer is not a finite number"
        return Prediction(line.number, line.text, fault=fault, row=line.row)
    return Prediction(line.number, line.text, kind.render(logits, model.labels, line.text), row=line.row)


def _read_as_data(model: InferenceModel, kind: Kind, lines: list[Line]) -> Data:
    """The lines in the form of training data, so that the model reads the same tokens as in training."""
    texts = tuple(line.text for line in lines)
    seconds = tuple(line.pair for line in lines if line.pair is not None)
    if seconds and model.on_pairs is False:
        raise UserError(f"{model.name} reads one text at a time", field="--pair", hint="leave it out")
    assert len(seconds) in (0, len(lines)), "a line without the second text that was asked for has a fault"
    empty = TaggedSentences((), (), ()) if kind.unit == "word" else Examples((), None, (), ())
    return empty.with_texts(texts, seconds or None)
