"""What a generative run shows: samples of both models, the second text, and tokens per second."""

from __future__ import annotations

from typing import Any

from probescale.models.token_speed import TokenSpeed
from probescale.recovery.generation import Generation
from probescale.recovery.harness import HarnessScore
from probescale.recovery.result import RunResult
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_megabytes, format_spread, name_metric, show_value
from probescale.report.table import Table, format_speed

TITLE = "What both models write"
KNOWN = (
    "What the field knows of models without some of their layers: likelihood and classification come back with "
    "little training; reasoning in several steps comes back much less."
)
SAMPLES = "Both models go on with the same beginnings of dev documents, always with the likeliest token."
HARNESS = "Tasks of lm-evaluation-harness, of which nothing was learned; ± is one standard error."
NO_SECOND = "What was forgotten of other text was not measured: give some with task.second."
SECOND = "Nothing was learned from the second text: what training has cost elsewhere shows there."


def generation_markdown(findings: RunFindings) -> list[str]:
    """Sections of a Markdown page about what both models write; none for other models."""
    if findings.generation is None:
        return []
    parts = [f"## {TITLE}"]
    for words, table in _list_tables(findings.result, findings.generation):
        parts += [words, table.markdown()]
    return parts


def generation_page(findings: RunFindings) -> dict[str, Any] | None:
    """The same for the page: sentences, each with its table."""
    if findings.generation is None:
        return None
    tables = _list_tables(findings.result, findings.generation)
    shown = [{"words": words, "header": table.header, "cells": table.rows} for words, table in tables]
    return {"title": TITLE, "tables": shown}


def _list_tables(result: RunResult, generation: Generation) -> list[tuple[str, Table]]:
    """Every table with the sentence that stands above it."""
    second = SECOND if result.subnetwork.second is not None else NO_SECOND
    length = generation.small_speeds.prompt_tokens
    speed = (
        f"Speed with one text at a time: reading a prompt of {length:,} tokens (prefill), and writing after it with a "
        "cache of keys and values (decoding). Both models were timed alternately on the machine of the run."
    )
    scores = [(HARNESS, harness_table(generation))] if generation.small_scores else []
    return [
        (f"{KNOWN} {second}", training_table(result)),
        *scores,
        (speed, speed_table(generation)),
        (SAMPLES, sample_table(generation)),
    ]


def training_table(result: RunResult) -> Table:
    """The original, the cut before training and the trained model, on dev and on the second text."""
    before = result.subnetwork.before
    values = {"original": (result.original.value, result.original.second)}
    if before is not None:
        values["cut, without training"] = (before.value, before.second)
    values["this model"] = (result.subnetwork.value, result.subnetwork.second)
    rows = tuple(
        (name, *("" if value is None else show_value(result, value, 2) for value in both))
        for name, both in values.items()
    )
    metric = name_metric(result)
    table = Table("", ("model", f"{metric} on dev", f"{metric} on the second text"), rows)
    return table if result.subnetwork.second is not None else table.without(f"{metric} on the second text")


def speed_table(generation: Generation) -> Table:
    """Tokens per second and memory of both models."""
    both = {"original": generation.original_speeds, "this model": generation.small_speeds}
    rows = tuple(
        (
            name,
            _show_speed(speeds.prefill, beside=name != "original"),
            _show_speed(speeds.decoding, beside=name != "original"),
            format_megabytes(speeds.weights_megabytes),
            format_megabytes(speeds.cache_megabytes),
        )
        for name, speeds in both.items()
    )
    header = ("model", "prefill, tokens/s", "decoding, tokens/s", "weights in memory", "cache after the prompt")
    return Table("", header, rows)


def harness_table(generation: Generation) -> Table:
    """Both models on every task of lm-evaluation-harness."""
    rows = tuple(
        (mine.task, mine.metric, _show_score(original), _show_score(mine), f"{mine.examples:,}")
        for original, mine in zip(generation.original_scores, generation.small_scores, strict=True)
    )
    return Table("", ("task", "metric", "original", "this model", "examples"), rows)


def _show_score(score: HarnessScore) -> str:
    return f"{score.value:.4g}" if score.error is None else f"{score.value:.4g} ± {score.error:.2g}"


def _show_speed(speed: TokenSpeed, *, beside: bool) -> str:
    rate = f"{speed.tokens_per_second:,.0f}"
    if not beside:
        return rate
    busy = ", busy" if speed.spread.busy else ""
    return f"{rate} ({format_speed(speed.speedup)}; {format_spread(speed.spread)}{busy})"


def sample_table(generation: Generation) -> Table:
    """Every prompt with what each model writes after it."""
    rows = tuple(zip(generation.prompts, generation.original, generation.small, strict=True))
    return Table("", ("beginning", "original", "this model"), rows, words=3)
