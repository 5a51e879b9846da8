"""Figures of a study: metric over size, metric over criterion, and the layers that every strategy keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from probescale.recovery.result import ORIGINAL
from probescale.report.figure import saved_figure
from probescale.selection.correlation import rank_correlation
from probescale.selection.scaling import fit_law
from probescale.study.results import ResultRow
from probescale.study.tables import group_seeds

MIN_POINTS = 4  # sizes to fit a scaling law, subsets to rank
CRITERIA = {"criterion": "sum of the kept layers' relevance", "probed": "probe accuracy of the subnetwork"}


def write_trade_off(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """The metric over parameters: one line per strategy, bars for seeds, the Pareto front and a scaling law."""
    groups = group_seeds(rows)
    with saved_figure(stem) as (figure, paths):
        axes = figure.subplots()
        methods = list(dict.fromkeys(row.strategy for row in rows if row.is_subnetwork))
        for number, method in enumerate(methods):
            points = sorted((_point(group) for group in groups if group[0].strategy == method), key=lambda p: p[0])
            size, value, low, high = (np.array(column) for column in zip(*points, strict=True))
            bars = np.maximum([value - low, high - value], 0)
            axes.errorbar(size, value, bars, color=f"C{number}", marker="o", capsize=2, linewidth=1.2, label=method)
        for group in groups:
            if not group[0].is_subnetwork:
                size, value, _, _ = _point(group)
                marker = "*" if group[0].strategy == ORIGINAL else "D"
                label = group[0].strategy
                axes.plot(size, value, color="black", marker=marker, markersize=9, linestyle="", label=label)
        _draw_front(axes, [_point(group) for group in groups])
        _draw_law(axes, rows)
        axes.set_xscale("log")
        axes.set_xlabel("parameters, embeddings and head included")
        axes.set_ylabel(rows[0].metric.replace("_", " "))
        axes.set_title(f"{rows[0].task}, {rows[0].model}: metric over size", loc="left")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return paths


def _point(group: Sequence[ResultRow]) -> tuple[float, float, float, float]:
    """Size, and the mean, minimum and maximum of the metric over the seeds."""
    values = [row.value for row in group]
    return mean(row.params for row in group), mean(values), min(values), max(values)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no smaller or equal size matches.

    >>> pareto_front([(3, 0.8), (1, 0.7), (2, 0.65), (4, 0.9)])
    [(1, 0.7), (3, 0.8), (4, 0.9)]
    """
    best: list[tuple[float, float]] = []
    for size, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or value > best[-1][1]:
            best.append((size, value))
    return best


def _draw_front(axes, points: Sequence[tuple[float, float, float, float]]) -> None:  # noqa: ANN001 - matplotlib's axes
    sizes, values = zip(*pareto_front([point[:2] for point in points]), strict=True)
    axes.step(sizes, values, where="post", color="0.35", linewidth=0.8, linestyle="--", label="Pareto front")


def _draw_law(axes, rows: Sequence[ResultRow]) -> None:  # noqa: ANN001
    own = [row for row in rows if row.is_subnetwork or row.strategy == ORIGINAL]
    points = [(float(row.params), row.value) for row in own]
    sizes = {size for size, _ in points}
    if len(sizes) < MIN_POINTS:
        return
    law = fit_law(points)
    grid = np.geomspace(min(sizes), max(sizes), 60)
    low, high = zip(*(law.interval(size) for size in grid), strict=True)
    axes.plot(grid, [law.predict(size) for size in grid], color="0.5", linewidth=1, label="scaling law")
    axes.fill_between(grid, low, high, color="0.5", alpha=0.12, linewidth=0)


def write_criterion(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """The metric over each criterion known before training, one point per model; [] without subnetworks."""
    small = [row for row in rows if row.criterion is not None]
    known = {title: [row for row in small if getattr(row, name) is not None] for name, title in CRITERIA.items()}
    panels = [(name, title) for name, title in CRITERIA.items() if known[title]]
    if not panels:
        return []
    methods = list(dict.fromkeys(row.strategy for row in small))
    with saved_figure(stem, (1.5 + 3.6 * len(panels), 3.4)) as (figure, paths):
        for axes, (name, title) in zip(np.ravel(figure.subplots(1, len(panels), sharey=True)), panels, strict=True):
            for number, method in enumerate(methods):
                points = [(getattr(row, name), row.value) for row in known[title] if row.strategy == method]
                if points:
                    axes.scatter(*zip(*points, strict=True), color=f"C{number}", s=24, label=method)
            axes.set_xlabel(title + _agreement(known[title], name))
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        first = figure.axes[0]
        first.set_ylabel(rows[0].metric.replace("_", " "))
        first.set_title(f"{rows[0].task}, {rows[0].model}: metric over criterion", loc="left")
        figure.axes[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return paths


def _agreement(rows: Sequence[ResultRow], name: str) -> str:
    """Spearman's rank correlation with the metric, if there are enough subsets."""
    criterion: dict[tuple[int, ...], list[float]] = {}
    measured: dict[tuple[int, ...], list[float]] = {}
    for row in rows:
        kept = row.kept
        criterion.setdefault(kept, []).append(getattr(row, name))
        measured.setdefault(kept, []).append(row.value)
    if len(criterion) < MIN_POINTS:
        return ""
    means = ({kept: mean(values) for kept, values in table.items()} for table in (criterion, measured))
    return f"\nrank correlation {rank_correlation(*means).rho:.2f}, {len(criterion)} subsets"


def write_map(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """How often each layer was kept: one line per strategy and budget, one column per layer."""
    groups = [group for group in group_seeds(rows) if group[0].is_subnetwork]
    layers = max(row.k for row in rows if row.strategy == ORIGINAL)
    shares = np.zeros((len(groups), layers))
    for line, group in enumerate(groups):
        for row in group:
            shares[line, [layer - 1 for layer in row.kept]] += 1 / len(group)
    with saved_figure(stem, (2.5 + 0.35 * layers, 1.2 + 0.3 * len(groups))) as (figure, paths):
        axes = figure.subplots()
        axes.imshow(shares, cmap="Greens", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(layers), [str(layer) for layer in range(1, layers + 1)])
        axes.set_yticks(range(len(groups)), [f"{group[0].strategy}, {group[0].budget}" for group in groups])
        axes.set_xlabel("layer")
        axes.set_title(f"{rows[0].task}, {rows[0].model}: layers kept", loc="left")
    return paths
