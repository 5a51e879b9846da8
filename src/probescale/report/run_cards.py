"""The figures that a run's page shows first: what is kept, how fast, how large, what became wrong."""

from __future__ import annotations

from probescale.models.subsets import format_layers
from probescale.recovery.result import EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.page import Card
from probescale.report.phrases import (
    describe_interval,
    describe_ratio,
    format_count,
    format_megabytes,
    format_spread,
    has_retention,
    name_metric,
    remark_lower,
    show_value,
)
from probescale.report.table import format_speed
from probescale.tasks.metrics import METRICS


def run_cards(findings: RunFindings) -> list[Card]:
    """Share kept, times as fast, size on disk, and what became wrong, or which layers stay."""
    result = findings.result
    return [_kept(result), _speed(result.subnetwork), _size(result.subnetwork, result.original), _changed(findings)]


def _kept(result: RunResult) -> Card:
    """There is no share where none can be named, or after a failure: then the metric itself."""
    metric = name_metric(result)
    values = f"{show_value(result, result.subnetwork.value)} instead of {show_value(result, result.original.value)}"
    if result.retention is None or not has_retention(result):
        lower = remark_lower(result)
        return Card(f"{show_value(result, result.subnetwork.value)}", metric, f"{values}{', ' * bool(lower)}{lower}")
    caption = f"of the {metric} kept"
    if METRICS[result.metric].lower_is_better:
        caption = f"retention: the original's {metric} divided by this model's"
    sure = describe_interval(result)
    remark = f"{values}; 95 % interval {sure}" if sure else values
    return Card(f"{100 * result.retention:.1f} %", caption, remark, result.retention)


def _speed(small: EvaluatedModel) -> Card:
    remark, busy = f"{small.milliseconds:.1f} ms per batch", False
    if small.spread:
        busy = small.spread.busy
        remark = f"{format_spread(small.spread)} in single passes" + ("; the machine was busy" if busy else "")
    speed, share = format_speed(small.speedup).removesuffix("x"), 1 / small.speedup if small.speedup > 0 else None
    return Card(f"{'~' * busy}{speed} times", "as fast as the original", remark, share, busy)


def _size(small: EvaluatedModel, original: EvaluatedModel) -> Card:
    share, ratio = small.params / original.params, describe_ratio(small, original)
    if small.megabytes is None or original.megabytes is None:
        remark = f"instead of {format_count(original.params)}: {ratio}"
        return Card(format_count(small.params), "parameters", remark, share)
    remark = f"instead of {format_megabytes(original.megabytes)}; {format_count(small.params)} parameters, {ratio}"
    return Card(format_megabytes(small.megabytes), "on disk", remark, small.megabytes / original.megabytes)


def _changed(findings: RunFindings) -> Card:
    changed, kept = findings.regressions, format_layers(findings.selection.kept)
    if changed is None or findings.result.failure:
        return Card(kept, f"layers kept of {findings.scores.layers}", f"budget {findings.selection.budget}")
    caption = f"of {changed.slices[0].rows:,} examples became wrong"
    return Card(f"{changed.newly_wrong:,}", caption, f"{changed.newly_right:,} became right")
