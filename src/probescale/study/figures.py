"""Figures of a study: what a size reaches, and which layers every method keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from probescale.report.figure import saved_figure
from probescale.selection.correlation import rank_correlation
from probescale.selection.scaling import fit_law
from probescale.study.results import ORIGINAL, ResultRow
from probescale.study.tables import group_seeds

FEWEST = 4  # sizes to fit a law, subsets to rank
CRITERIA = {"criterion": "relevance of the kept layers, added up", "probed": "probes at the subnetwork's end"}


def write_trade_off(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """The metric against all parameters: a line a method, seeds as bars, the Pareto front, the law through all."""
    groups = group_seeds(rows)
    with saved_figure(stem) as (figure, paths):
        axes = figure.subplots()
        methods = list(dict.fromkeys(row.strategy for row in rows if row.strategy != ORIGINAL))
        for number, method in enumerate(methods):
            points = sorted((_point(group) for group in groups if group[0].strategy == method), key=lambda p: p[0])
            size, value, low, high = (np.array(column) for column in zip(*points, strict=True))
            bars = np.maximum([value - low, high - value], 0)
            axes.errorbar(size, value, bars, color=f"C{number}", marker="o", capsize=2, linewidth=1.2, label=method)
        for group in groups:
            if group[0].strategy == ORIGINAL:
                size, value, _, _ = _point(group)
                axes.plot(size, value, color="black", marker="*", markersize=11, linestyle="", label=ORIGINAL)
        _front(axes, [_point(group) for group in groups])
        _law(axes, rows)
        axes.set_xscale("log")
        axes.set_xlabel("parameters, embeddings and head counted")
        axes.set_ylabel(rows[0].metric.replace("_", " "))
        axes.set_title(f"{rows[0].task}, {rows[0].model}: what a size reaches", loc="left")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return paths


def _point(group: Sequence[ResultRow]) -> tuple[float, float, float, float]:
    """Size, and the mean, least and most of the metric over the seeds."""
    values = [row.value for row in group]
    return mean(row.params for row in group), mean(values), min(values), max(values)


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that nothing smaller is as good as.

    >>> front([(3, 0.8), (1, 0.7), (2, 0.65), (4, 0.9)])
    [(1, 0.7), (3, 0.8), (4, 0.9)]
    """
    best: list[tuple[float, float]] = []
    for size, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or value > best[-1][1]:
            best.append((size, value))
    return best


def _front(axes, points: Sequence[tuple[float, float, float, float]]) -> None:  # noqa: ANN001 - matplotlib's axes
    sizes, values = zip(*front([point[:2] for point in points]), strict=True)
    axes.step(sizes, values, where="post", color="0.35", linewidth=0.8, linestyle="--", label="Pareto front")


def _law(axes, rows: Sequence[ResultRow]) -> None:  # noqa: ANN001
    points = [(float(row.params), row.value) for row in rows]
    sizes = {size for size, _ in points}
    if len(sizes) < FEWEST:
        return
    law = fit_law(points)
    grid = np.geomspace(min(sizes), max(sizes), 60)
    low, high = zip(*(law.interval(size) for size in grid), strict=True)
    axes.plot(grid, [law.predict(size) for size in grid], color="0.5", linewidth=1, label="scaling law")
    axes.fill_between(grid, low, high, color="0.5", alpha=0.12, linewidth=0)


def write_criterion(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """What was known before training against what was measured: a point a model; [] if there are no subnetworks."""
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
        first.set_title(f"{rows[0].task}, {rows[0].model}: criterion against measured", loc="left")
        figure.axes[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return paths


def _agreement(rows: Sequence[ResultRow], name: str) -> str:
    """Spearman's rank correlation, where there are subsets enough for one."""
    said: dict[tuple[int, ...], list[float]] = {}
    found: dict[tuple[int, ...], list[float]] = {}
    for row in rows:
        kept = tuple(int(one) for one in row.layers.split())
        said.setdefault(kept, []).append(getattr(row, name))
        found.setdefault(kept, []).append(row.value)
    if len(said) < FEWEST:
        return ""
    means = ({kept: mean(values) for kept, values in table.items()} for table in (said, found))
    return f"\nrank correlation {rank_correlation(*means).rho:.2f}, {len(said)} subsets"


def write_map(rows: Sequence[ResultRow], stem: Path) -> list[Path]:
    """A line a method and budget, a column a layer: how often the layer was kept."""
    groups = [group for group in group_seeds(rows) if group[0].strategy != ORIGINAL]
    layers = max(row.k for row in rows if row.strategy == ORIGINAL)
    shares = np.zeros((len(groups), layers))
    for line, group in enumerate(groups):
        for row in group:
            shares[line, [int(one) - 1 for one in row.layers.split()]] += 1 / len(group)
    with saved_figure(stem, (2.5 + 0.35 * layers, 1.2 + 0.3 * len(groups))) as (figure, paths):
        axes = figure.subplots()
        axes.imshow(shares, cmap="Greens", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(layers), [str(layer) for layer in range(1, layers + 1)])
        axes.set_yticks(range(len(groups)), [f"{group[0].strategy}, {group[0].budget}" for group in groups])
        axes.set_xlabel("layer")
        axes.set_title(f"{rows[0].task}, {rows[0].model}: layers kept", loc="left")
    return paths
