"""Texts in, labels with probabilities out, as they come: memory does not grow with the number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from probescale.deploy.inference import InferenceModel, run_in_parts
from probescale.deploy.texts import Line
from probescale.errors import UserError
from probescale.models.batching import batches_by_tokens
from probescale.models.memory import BatchSplitter
from probescale.tasks.kinds import Kind, Rendered

CHUNK = 1024  # lines read at once, so that texts of like length share a batch
BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Prediction:
    """The prediction for one line, or why there is none."""

    number: int
    text: str
    rendered: Rendered | None = None
    fault: str = ""

    def record(self) -> dict[str, Any]:
        """The fields of a line of JSON."""
        said = self.rendered.fields if self.rendered else {}
        known = {"text": self.text, **said, "fault": self.fault}
        return {"line": self.number, **{name: value for name, value in known.items() if value != ""}}


def predict_lines(model: InferenceModel, lines: Iterable[Line], max_length: int | None = None) -> Iterator[Prediction]:
    """In the order of the lines. Texts are cut where training cut them, unless another length is given."""
    if model.kind is None:
        raise UserError(
            f"{model.name} has no head: it gives states, no labels",
            field="MODEL",
            hint="use the model of a run, or one with a classification head",
        )
    limit = min(max_length or model.trained_length or model.max_length, model.max_length)
    rest, portions = iter(lines), BatchSplitter()
    while chunk := list(islice(rest, CHUNK)):
        good = [line for line in chunk if not line.fault]
        answers = _answers(model, model.kind, good, limit, portions) if good else []
        found = dict(zip((line.number for line in good), answers, strict=True))
        for line in chunk:
            yield found.get(line.number) or Prediction(line.number, line.text, fault=line.fault)


def _answers(
    model: InferenceModel, kind: Kind, lines: list[Line], limit: int, portions: BatchSplitter
) -> list[Prediction]:
    by_word = kind.unit == "word"
    if by_word and any(line.pair is not None for line in lines):
        raise UserError(f"{model.name} tags the words of one text", field="--pair", hint="leave it out")
    texts = [line.text.split() for line in lines] if by_word else [line.text for line in lines]
    if len({line.pair is None for line in lines}) > 1:
        raise UserError("some lines have a second text and some do not", field="--pair")
    pairs = None if lines[0].pair is None else [line.pair or "" for line in lines]
    encoded = model.tokenizer(texts, pairs, truncation=True, max_length=limit, is_split_into_words=by_word)
    lengths = np.array([len(ids) for ids in encoded["input_ids"]])
    order = np.argsort(-lengths, kind="stable")
    answers: list[Prediction | None] = [None] * len(lines)
    for here in batches_by_tokens(lengths[order], BATCH_TOKENS):
        rows = order[here]
        fields = {name: [values[row] for row in rows] for name, values in encoded.items()}
        batch = dict(model.tokenizer.pad(fields, return_tensors="np"))
        logits = run_in_parts(model, batch, [lines[row].number - 1 for row in rows], portions)
        for row, said in zip(rows, logits, strict=True):
            if by_word:
                padded = len(said) - lengths[row] if model.tokenizer.padding_side == "left" else 0
                said = _word_rows(said[padded:], encoded.word_ids(int(row)), len(texts[row]))
            rendered = kind.render(np.atleast_2d(said), model.labels, lines[row].text)
            answers[row] = Prediction(lines[row].number, lines[row].text, rendered)
    return [answer for answer in answers if answer is not None]


def _word_rows(logits: np.ndarray, word_ids: list[int | None], words: int) -> np.ndarray:
    """(words, columns) the logits at the first token of every word; NaN for words beyond the length limit."""
    rows = np.full((words, logits.shape[-1]), np.nan, logits.dtype)
    for token, word in reversed(list(enumerate(word_ids))):
        if word is not None:
            rows[word] = logits[token]
    return rows
