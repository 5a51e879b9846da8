"""What a run of a sentence encoder shows beside its metric: the size of an index, and texts per second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_megabytes
from probescale.report.table import Table
from probescale.tasks.metrics import METRICS, Metric

TITLE = "What a search pays"
WORDS = (
    "The index has the vectors of a million texts as float32, without compression. Texts per second: from the text to "
    "its vector, in batches of dev texts, on the machine of the run."
)


def vectors_markdown(findings: RunFindings) -> list[str]:
    """A section of a Markdown page; none for models that give no vectors."""
    table = vectors_table(findings.result)
    return [f"## {TITLE}", _words(findings.result), table.markdown()] if table.rows else []


def vectors_page(findings: RunFindings) -> dict[str, Any] | None:
    """The same for the page: a title, and a sentence with its table."""
    table = vectors_table(findings.result)
    if not table.rows:
        return None
    return {"title": TITLE, "tables": [{"words": _words(findings.result), "header": table.header, "cells": table.rows}]}


def _words(result: RunResult) -> str:
    first = next(iter(result.subnetwork.first), None)
    return (
        f'{WORDS} Vectors with the first numbers alone: SentenceTransformer("model", truncate_dim={first}).'
        if first
        else WORDS
    )


def vectors_table(result: RunResult) -> Table:
    """Every model whose vectors were measured: their numbers, the index, the texts per second."""
    models: dict[str, EvaluatedModel | Alternative] = {ORIGINAL: result.original, "this model": result.subnetwork}
    models |= result.other_models
    models |= {other.name: other for other in result.alternatives}
    rows = tuple(row for name, model in models.items() for row in _rows(name, model, METRICS[result.metric]))
    metric = result.metric.replace("_", " ")
    return Table("", ("model", "numbers per vector", "index of a million texts", metric, "texts per second"), rows)


def _rows(name: str, model: EvaluatedModel | Alternative, metric: Metric) -> Iterator[tuple[str, ...]]:
    """The row of a model, and one for each number of first numbers that was measured."""
    if model.vectors is None:
        return
    values = {model.vectors.width: model.value}
    values |= model.first if isinstance(model, EvaluatedModel) else {}
    for width, value in values.items():
        cost = model.vectors.model_copy(update={"width": width})
        called = name if width == model.vectors.width else f"{name}, the first {width:,}"
        size, speed = format_megabytes(cost.index_megabytes), f"{cost.texts_per_second:,.0f}"
        yield called, f"{width:,}", size, metric.show(value), speed
