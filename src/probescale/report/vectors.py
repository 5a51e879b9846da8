"""What a run of a sentence encoder shows beside its metric: the size of an index, and texts per second."""

from __future__ import annotations

from typing import Any

from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_megabytes
from probescale.report.table import Table

TITLE = "What a search pays"
WORDS = (
    "The index has the vectors of a million texts as float32, without compression. Texts per second: from the text to "
    "its vector, in batches of dev texts, on the machine of the run."
)


def vectors_markdown(findings: RunFindings) -> list[str]:
    """A section of a Markdown page; none for models that give no vectors."""
    table = vectors_table(findings.result)
    return [f"## {TITLE}", WORDS, table.markdown()] if table.rows else []


def vectors_page(findings: RunFindings) -> dict[str, Any] | None:
    """The same for the page: a title, and a sentence with its table."""
    table = vectors_table(findings.result)
    if not table.rows:
        return None
    return {"title": TITLE, "tables": [{"words": WORDS, "header": table.header, "cells": table.rows}]}


def vectors_table(result: RunResult) -> Table:
    """Every model whose vectors were measured: their numbers, the index, the texts per second."""
    models: dict[str, EvaluatedModel | Alternative] = {ORIGINAL: result.original, "this model": result.subnetwork}
    models |= result.other_models
    models |= {other.name: other for other in result.alternatives}
    rows = tuple(
        (
            name,
            f"{model.vectors.width:,}",
            format_megabytes(model.vectors.index_megabytes),
            f"{model.vectors.texts_per_second:,.0f}",
        )
        for name, model in models.items()
        if model.vectors
    )
    return Table("", ("model", "numbers per vector", "index of a million texts", "texts per second"), rows)
