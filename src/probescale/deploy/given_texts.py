"""Texts that a Python program gives, in the form in which `predict` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probescale.deploy.inference import InferenceModel
from probescale.deploy.texts import Line
from probescale.errors import UserError


def read_given(
    model: InferenceModel, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None
) -> list[Line]:
    """A line for every text, with its second text; refused where the model was trained on other ones."""
    firsts = _check_strings(texts, "texts")
    seconds = None if pairs is None else _check_strings(pairs, "pairs")
    if seconds is None:
        if model.on_pairs:
            raise UserError(
                f"{model.name} was trained on pairs of texts, and there are no second texts",
                field="pairs",
                hint='give one for each text: predict(["a question"], pairs=["a sentence"])',
            )
        return [Line(number, text) for number, text in enumerate(firsts, 1)]
    if model.on_pairs is False:
        raise UserError(f"{model.name} reads one text at a time", field="pairs", hint="leave it out")
    if len(firsts) != len(seconds):
        raise UserError(
            f"there are {len(seconds)} second texts for {len(firsts)} texts",
            field="pairs",
            hint="give one for each text",
        )
    return [Line(number, *both) for number, both in enumerate(zip(firsts, seconds, strict=True), 1)]


def _check_strings(texts: Any, field: str) -> list[str]:  # noqa: ANN401 - whatever the user gave
    """The texts as a list; one text alone is a list of one."""
    checked = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(checked, 1):
        if not isinstance(text, str):
            raise UserError(f"number {number} is {text!r}, not a text", field=field, hint="give strings only")
    return checked
