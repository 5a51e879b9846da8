"""report.html of a study: every trained model, and which differences are significant."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from probescale.models.subsets import Subset, format_layers
from probescale.probing.score_files import load_scores
from probescale.recovery.result import ORIGINAL
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.study.cells import Study
from probescale.study.comparison import Comparison
from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow, Results
from probescale.study.tables import group_seeds, study_notes

ENOUGH = 0.95  # share of the original's metric that a recommended model keeps
COLUMNS: tuple[Column, ...] = (
    ("model", "model", "word"),
    ("task", "task", "word"),
    ("method", "method", "word"),
    ("budget", "budget", "word"),
    ("seed", "seed", "plain"),
    ("layers", "layers kept", "word"),
    ("params", "parameters", "count"),
    ("total", "of total", "percent"),
    ("of_layers", "of layers", "percent"),
    ("value", "metric", "points"),
    ("interval", "95 % interval", "plain"),
    ("retention", "retention", "percent"),
    ("agreement", "agreement", "percent"),
    ("speed", "speed", "plain"),
)


def study_page(folder: StudyFolder, results: Results, comparisons: Sequence[Comparison]) -> str:
    """The page as HTML."""
    study, command = folder.study()
    done = len({row.cell for row in results.rows if row.strategy != ORIGINAL})
    return render(
        Page(
            title="ProbeScale: a study",
            lead=_lead(results.rows),
            cards=[
                (f"{done} of {len(study.cells)}", "cells done"),
                (str(len({row.strategy for row in results.rows} - {ORIGINAL})), "methods"),
                (str(len({row.budget for row in results.rows} - {""})), "budgets"),
                (str(len({row.seed for row in results.rows})), "seeds"),
            ],
            rows=[_row(row) for row in results.rows],
            columns=_columns(results.rows),
            bars="95 %, over the dev examples; one training each.",
            places=_places(folder, study, results.rows),
            notes=[*study_notes(results), *(comparison.sentence() for comparison in comparisons)],
            record=[("command", command), ("settings", "study.json"), ("all figures", "results.csv, results.parquet")],
        )
    )


def _columns(rows: Sequence[ResultRow]) -> list[Column]:
    """All columns, without model or task if there is only one."""
    constant = {name for name in ("model", "task") if len({getattr(row, name) for row in rows}) == 1}
    return [column for column in COLUMNS if column[0] not in constant]


def _lead(rows: Sequence[ResultRow]) -> list[str]:
    """For every model and task, the smallest model that keeps enough."""
    sentences = []
    for model, task in dict.fromkeys((row.model, row.task) for row in rows):
        groups = group_seeds([row for row in rows if (row.model, row.task) == (model, task)])
        original = next(group for group in groups if group[0].strategy == ORIGINAL)
        value = mean(row.value for row in original)
        smaller = [group for group in groups if group is not original]
        enough = [group for group in smaller if mean(row.value for row in group) >= ENOUGH * value]
        metric = original[0].metric.replace("_", " ")
        start = f"{task} with {model}: the original reaches {metric} {100 * value:.2f}. "
        if not enough:
            sentences.append(start + f"No trained model keeps {ENOUGH:.0%} of it.")
            continue
        best = min(enough, key=lambda group: (mean(row.params for row in group), -mean(row.value for row in group)))
        first, reached = best[0], mean(row.value for row in best)
        names = " and ".join(group[0].strategy for group in smaller if _layers(group) == _layers(best))
        trained = f"mean of {len(best)} seeds" if len(best) > 1 else "one training"
        sentences.append(
            start + f"The smallest that keeps {ENOUGH:.0%} of it is {names} with {first.budget}: "
            f"{first.ratio_total:.1%} of the parameters, {100 * reached:.2f} ({reached / value:.1%}; {trained}). It is "
            "picked by these figures, so it may keep a little less of other data."
        )
    return sentences


def _layers(group: Sequence[ResultRow]) -> list[tuple[int, str, int]]:
    """What was kept with every seed: strategies that agree in it are one."""
    return [(row.seed, row.layers, row.params) for row in group]


def _row(row: ResultRow) -> dict[str, Any]:
    return {
        "model": row.model,
        "task": row.task,
        "method": row.strategy,
        "budget": row.budget,
        "seed": row.seed,
        "layers": format_layers(row.kept),
        "params": row.params,
        "total": row.ratio_total,
        "of_layers": row.ratio_layers,
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "interval": f"{100 * row.low:.1f} to {100 * row.high:.1f}",
        "retention": row.retention,
        "agreement": row.agreement,
        "speed": f"{row.speedup:.2f}x",
        "answer": False,
    }


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
            values.setdefault(row.kept, []).append(row.value)
        measured = {kept: mean(of_seeds) for kept, of_seeds in values.items()}
        kept = next((row.kept for row in own if row.strategy == cell.strategy), ())
        name = f"{cell.model}, {cell.task}"
        metric = own[0].metric.replace("_", " ")
        places[cell.model, cell.task] = explorer_entry(name, load_scores(path), cell.strategy, kept, metric, measured)
    return list(places.values())
