"""report.html of a study: what was found, every trained model, and which differences are significant."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import mean
from typing import Any

from probescale.models.subsets import Subset, format_layers
from probescale.probing.score_files import load_scores
from probescale.recovery.result import ORIGINAL
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.study.answers import Answer, find_answers, study_cards, study_verdict
from probescale.study.cells import Study
from probescale.study.comparison import Comparison
from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow, Results
from probescale.study.tables import group_seeds, study_notes
from probescale.tasks.metrics import METRICS

COLUMNS = (
    Column("model", "model", "word"),
    Column("task", "task", "word"),
    Column("method", "method", "word"),
    Column("budget", "budget", "word"),
    Column("seeds", "seeds", "plain"),
    Column("layers", "layers kept", "word"),
    Column("params", "parameters", "count", "shares"),
    Column("value", "metric", "points", "interval"),
    Column("retention", "retention", "percent"),
    Column("agreement", "agreement", "percent"),
    Column("speed", "speed", "times", "spread"),
    Column("published", "published", "points", "published_as"),
)


def study_page(folder: StudyFolder, results: Results, comparisons: Sequence[Comparison]) -> str:
    """The page as HTML."""
    study, command = folder.study()
    found = find_answers(results.rows)
    metrics = {row.metric.replace("_", " ") for row in results.rows}
    several = len({row.seed for row in results.rows}) > 1
    return render(
        Page(
            title="ProbeScale: a study",
            verdict=study_verdict(found),
            lead=[*_unfinished(study, results), *(answer.sentence() for answer in found)],
            cards=study_cards(found, results.rows),
            rows=[_row(row) for row in results.rows],
            means=[_mean_row(group, found) for group in _groups(results.rows)],
            columns=_columns(results.rows, metrics),
            bars="95 %, over the dev examples; one training each." + " The table has means over the seeds." * several,
            places=_places(folder, study, results.rows),
            metric=", ".join(sorted(metrics)),
            factor=_factor(results.rows),
            line=found[0].line() if len(found) == 1 else None,
            notes=[*study_notes(results), *(comparison.sentence() for comparison in comparisons), *_busy(results.rows)],
            record=[("command", command), ("settings", "study.json"), ("all figures", "results.csv, results.parquet")],
        )
    )


def _factor(rows: Sequence[ResultRow]) -> float:
    """By which values are shown: that of the metrics, where they agree."""
    factors = {METRICS[row.metric].factor for row in rows}
    return factors.pop() if len(factors) == 1 else 1.0


def _unfinished(study: Study, results: Results) -> list[str]:
    """That some cells have no result yet; empty for a complete study."""
    if results.complete:
        return []
    left = len(results.missing) + len(results.failed)
    return [f"{left} of {len(study.cells)} cells have no result: see the list below."]


def _busy(rows: Sequence[ResultRow]) -> list[str]:
    """That speeds are only guesses, where other work disturbed the timing."""
    disturbed = sum(row.busy for row in rows)
    if not disturbed:
        return []
    return [f"The machine was busy while {disturbed} of {len(rows)} models were timed: their speeds are only guesses."]


def _columns(rows: Sequence[ResultRow], metrics: Collection[str]) -> list[Column]:
    """All columns, without model, task or seeds if there is only one; the metric by its name if there is only one.

    Published figures are shown where there are some.
    """
    constant = {name for name in ("model", "task") if len({getattr(row, name) for row in rows}) == 1}
    constant |= {"seeds"} if len({row.seed for row in rows}) == 1 else set()
    constant |= set() if any(row.published is not None for row in rows) else {"published"}
    shown = [column for column in COLUMNS if column.key not in constant]
    title = next(iter(metrics)) if len(metrics) == 1 else "metric"
    return [column._replace(title=title) if column.key == "value" else column for column in shown]


def _layers(group: Sequence[ResultRow]) -> list[tuple[int, str, int]]:
    """What was kept with every seed: strategies that agree in it are one."""
    return [(row.seed, row.layers, row.params) for row in group]


def _row(row: ResultRow) -> dict[str, Any]:
    return {
        "model": row.model,
        "task": row.task,
        "method": row.strategy,
        "budget": row.budget,
        "layers": format_layers(row.kept),
        "params": row.params,
        "total": row.ratio_total,
        "of_layers": row.ratio_layers,
        "shares": f"{100 * row.ratio_total:.1f} % of all, {100 * row.ratio_layers:.1f} % of layers",
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "interval": _range(row, row.low, row.high),
        "retention": row.retention,
        "agreement": row.agreement,
        "speed": row.speedup,
        "spread": _spread(row),
        "published": row.published,
        "published_as": row.published_as,
        "answer": False,
    }


def _groups(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    """Rows that differ in the seed alone, task by task."""
    tasks = dict.fromkeys(row.task for row in rows)
    return [group for task in tasks for group in group_seeds([row for row in rows if row.task == task])]


def _mean_row(group: Sequence[ResultRow], found: Sequence[Answer]) -> dict[str, Any]:
    """A row of the table: one method under one budget, the mean of its seeds, and how far they lie apart."""
    answer = any(list(one.best) == list(group) and one.enough for one in found)
    shown = _row(group[0]) | {"seeds": len(group), "answer": answer}
    if len(group) == 1:
        return shown
    values, speeds = [row.value for row in group], [row.speedup for row in group]
    retention = [row.retention for row in group if row.retention is not None]
    return shown | {
        "layers": "; ".join(dict.fromkeys(format_layers(row.kept) for row in group)),
        "params": round(mean(row.params for row in group)),
        "value": mean(row.value for row in group),
        "interval": f"seeds: {_range(group[0], min(values), max(values))}",
        "retention": mean(retention) if len(retention) == len(group) else None,
        "agreement": mean(row.agreement for row in group),
        "speed": mean(speeds),
        "spread": f"{min(speeds):.1f} to {max(speeds):.1f}" + ", busy" * any(row.busy for row in group),
    }


def _range(row: ResultRow, low: float, high: float) -> str:
    """Two values of the row's metric, as people read them."""
    show = METRICS[row.metric].show
    return f"{show(low, 1)} to {show(high, 1)}"


def _spread(row: ResultRow) -> str:
    if row.speed_low is None or row.speed_high is None:
        return ""
    return f"{row.speed_low:.1f} to {row.speed_high:.1f}" + ", busy" * row.busy


def _places(folder: StudyFolder, study: Study, rows: Sequence[ResultRow]) -> list[dict[str, Any]]:
    """Explorer entries: each model on each task, with the scores of the first seed and mean metrics over seeds."""
    places: dict[tuple[str, str], dict[str, Any]] = {}
    for preparation, cells in study.preparations.items():
        cell, path = cells[0], folder.preparation(preparation) / "scores.json"
        own = [row for row in rows if (row.model, row.task) == (cell.model, cell.task)]
        if (cell.model, cell.task) in places or not path.is_file() or not own:
            continue
        values: dict[Subset, list[float]] = {}
        for row in own:
            if row.is_subnetwork or row.strategy == ORIGINAL:  # layers of another model are not these
                values.setdefault(row.kept, []).append(row.value)
        measured = {kept: mean(of_seeds) for kept, of_seeds in values.items()}
        kept = next((row.kept for row in own if row.strategy == cell.strategy), ())
        name = f"{cell.model}, {cell.task}"
        metric = own[0].metric.replace("_", " ")
        places[cell.model, cell.task] = explorer_entry(name, load_scores(path), cell.strategy, kept, metric, measured)
    return list(places.values())
