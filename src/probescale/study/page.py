"""The page of a study: every model that was trained, and what the evidence supports."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from probescale.models.subsets import Subset, format_layers
from probescale.probing.score_files import load_scores
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.study.cells import Study
from probescale.study.comparison import Comparison
from probescale.study.folder import StudyFolder
from probescale.study.results import ORIGINAL, ResultRow, Results
from probescale.study.tables import group_seeds, study_notes

ENOUGH = 0.95  # of the original's metric: the answer that the page points out
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


def study_page(folder: StudyFolder, study: Study, command: str, results: Results, found: Sequence[Comparison]) -> str:
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
            bars="95 % over resampled dev examples, of one training each.",
            places=_places(folder, study, results.rows),
            notes=[*study_notes(results), *(one.sentence() for one in found)],
            record=[("command", command), ("settings", "study.json"), ("all figures", "results.csv, results.parquet")],
        )
    )


def _columns(rows: Sequence[ResultRow]) -> list[Column]:
    """A model or task that is the only one stands above the table."""
    alone = {name for name in ("model", "task") if len({getattr(row, name) for row in rows}) == 1}
    return [column for column in COLUMNS if column[0] not in alone]


def _lead(rows: Sequence[ResultRow]) -> list[str]:
    """For every model and task: the smallest that keeps enough."""
    said = []
    for model, task in dict.fromkeys((row.model, row.task) for row in rows):
        groups = group_seeds([row for row in rows if (row.model, row.task) == (model, task)])
        whole = next(group for group in groups if group[0].strategy == ORIGINAL)
        value = mean(row.value for row in whole)
        smaller = [group for group in groups if group is not whole]
        enough = [group for group in smaller if mean(row.value for row in group) >= ENOUGH * value]
        metric = whole[0].metric.replace("_", " ")
        words = f"{task} with {model}: the original reaches {metric} {100 * value:.2f}. "
        if not enough:
            said.append(words + f"Nothing that was tried keeps {ENOUGH:.0%} of it.")
            continue
        best = min(enough, key=lambda group: (mean(row.params for row in group), -mean(row.value for row in group)))
        one, reached = best[0], mean(row.value for row in best)
        said.append(
            words + f"The smallest that keeps {ENOUGH:.0%} of it is {one.strategy} with {one.budget}: "
            f"{one.ratio_total:.1%} of the parameters, {100 * reached:.2f} ({reached / value:.1%})."
        )
    return said


def _row(row: ResultRow) -> dict[str, Any]:
    return {
        "model": row.model,
        "task": row.task,
        "method": row.strategy,
        "budget": row.budget,
        "seed": row.seed,
        "layers": format_layers([int(one) for one in row.layers.split()]),
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
    """A model on a task, by the scores of its first seed; what was measured is the mean over seeds."""
    places: dict[tuple[str, str], dict[str, Any]] = {}
    for preparation, cells in study.preparations.items():
        one, path = cells[0], folder.preparation(preparation) / "scores.json"
        here = [row for row in rows if (row.model, row.task) == (one.model, one.task)]
        if (one.model, one.task) in places or not path.is_file() or not here:
            continue
        values: dict[Subset, list[float]] = {}
        for row in here:
            values.setdefault(_layers(row), []).append(row.value)
        measured = {kept: mean(several) for kept, several in values.items()}
        kept = next((_layers(row) for row in here if row.strategy == one.strategy), (1,))
        name = f"{one.model}, {one.task}"
        metric = here[0].metric.replace("_", " ")
        places[one.model, one.task] = explorer_entry(name, load_scores(path), one.strategy, kept, metric, measured)
    return list(places.values())


def _layers(row: ResultRow) -> Subset:
    return tuple(int(layer) for layer in row.layers.split())
