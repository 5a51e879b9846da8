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

CHUNK = 1024  # lines read at once, so that texts of like length share a batch
BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Prediction:
    """Of one line: a label with its probability, a number, or a label a word; or why there is none."""

    number: int
    text: str
    label: str | None = None
    probability: float | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None
    tags: tuple[tuple[str, str], ...] | None = None  # (word, tag)
    fault: str = ""

    def record(self) -> dict[str, Any]:
        """What is known, for a line of JSON."""
        known = {name: value for name, value in vars(self).items() if value not in (None, "") and name != "number"}
        return {"line": self.number, **known}


def predict_lines(model: InferenceModel, lines: Iterable[Line], max_length: int | None = None) -> Iterator[Prediction]:
    """In the order of the lines. Texts are cut where training cut them, unless another length is given."""
    if model.kind == "states":
        raise UserError(
            f"{model.name} has no head: it gives states, no labels",
            field="MODEL",
            hint="use the model of a run, or one with a classification head",
        )
    limit = min(max_length or model.trained_length or model.max_length, model.max_length)
    rest, portions = iter(lines), BatchSplitter()
    while chunk := list(islice(rest, CHUNK)):
        good = [line for line in chunk if not line.fault]
        answers = _answers(model, good, limit, portions) if good else []
        found = dict(zip((line.number for line in good), answers, strict=True))
        for line in chunk:
            yield found.get(line.number) or Prediction(line.number, line.text, fault=line.fault)


def _answers(model: InferenceModel, lines: list[Line], limit: int, portions: BatchSplitter) -> list[Prediction]:
    tags = model.kind == "tags"
    if tags and any(line.pair is not None for line in lines):
        raise UserError(f"{model.name} tags the words of one text", field="--pair", hint="leave it out")
    texts = [line.text.split() for line in lines] if tags else [line.text for line in lines]
    if len({line.pair is None for line in lines}) > 1:
        raise UserError("some lines have a second text and some do not", field="--pair")
    pairs = None if lines[0].pair is None else [line.pair or "" for line in lines]
    encoded = model.tokenizer(texts, pairs, truncation=True, max_length=limit, is_split_into_words=tags)
    lengths = np.array([len(ids) for ids in encoded["input_ids"]])
    order = np.argsort(-lengths, kind="stable")
    answers: list[Prediction | None] = [None] * len(lines)
    for here in batches_by_tokens(lengths[order], BATCH_TOKENS):
        rows = order[here]
        fields = {name: [values[row] for row in rows] for name, values in encoded.items()}
        batch = dict(model.tokenizer.pad(fields, return_tensors="np"))
        logits = run_in_parts(model, batch, [lines[row].number - 1 for row in rows], portions)
        for row, said in zip(rows, logits, strict=True):
            words = encoded.word_ids(int(row)) if tags else None
            answers[row] = _answer(model, lines[row], said, words, int(batch["attention_mask"].shape[1]))
    return [answer for answer in answers if answer is not None]


def _answer(
    model: InferenceModel, line: Line, said: np.ndarray, words: list[int | None] | None, width: int
) -> Prediction:
    if words is not None:
        padded = width - len(words) if model.tokenizer.padding_side == "left" else 0
        first = {word: place for place, word in reversed(list(enumerate(words))) if word is not None}
        best = {word: model.labels[int(said[padded + place].argmax())] for word, place in first.items()}
        parts = line.text.split()
        return Prediction(line.number, line.text, tags=tuple((part, best.get(n, "")) for n, part in enumerate(parts)))
    if model.kind == "number":
        return Prediction(line.number, line.text, value=float(said[0]))
    shares = np.exp(said - said.max())
    shares = (shares / shares.sum()).tolist()
    best = int(np.argmax(said))
    every = dict(zip(model.labels, shares, strict=True))
    return Prediction(line.number, line.text, model.labels[best], shares[best], every)
