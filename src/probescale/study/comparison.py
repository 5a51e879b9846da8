"""Is one strategy really better than another? Compared row by row on the same dev set, over all seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow, read_predictions
from probescale.study.significance import SIGNIFICANCE, compare_methods
from probescale.tasks.metrics import METRICS

Methods = Mapping[str, Sequence[ResultRow]]  # rows of every strategy, one per seed


@dataclass(frozen=True)
class Comparison:
    """The strategy with the best mean under a budget, compared with the second best that kept other layers."""

    model: str
    task: str
    budget: str
    best: str
    other: str  # empty: all strategies kept the same layers
    lead: float = 0.0  # by how much the best one's mean metric is better
    wins: int = 0  # rows on which the best does better, over all trainings
    losses: int = 0  # rows on which the other does
    p: float | None = None  # None: of one training
    seeds: int = 0

    @property
    def significant(self) -> bool:
        """Whether more than chance in rows and trainings speaks for the best."""
        return self.p is not None and self.p < SIGNIFICANCE and self.lead > 0 and self.wins > self.losses

    def sentence(self) -> str:
        """The comparison and its verdict in words."""
        where = f"{self.task}, {self.model}, {self.budget}"
        if not self.other:
            return f"{where}: {self.best} kept the same layers."
        if self.wins == self.losses == 0:
            return f"{where}: {self.best} and {self.other} do equally well on every row."
        counts = f"{self.best} does better than {self.other} on {self.wins} rows and worse on {self.losses}"
        if self.p is None:
            return f"{where}: {counts}, in one training each: give more seeds to tell whether that is chance."
        verdict = f"{self.best} is better" if self.significant else "no significant difference"
        return f"{where}: {counts} ({self.seeds} seeds, p = {self.p:.2g}): {verdict}."


def compare_best_methods(folder: StudyFolder, rows: Sequence[ResultRow]) -> list[Comparison]:
    """One comparison for every model, task and budget with at least two strategies."""
    groups: dict[tuple[str, str, str], dict[str, list[ResultRow]]] = {}
    for row in rows:
        if row.is_subnetwork:
            methods = groups.setdefault((row.model, row.task, row.budget), {})
            methods.setdefault(row.strategy, []).append(row)
    return [_compare(folder, merge_methods(methods)) for methods in groups.values() if len(methods) > 1]


def merge_methods(methods: Methods) -> dict[str, Sequence[ResultRow]]:
    """Strategies that kept the same layers with every seed are one, with all of their names."""
    merged: dict[object, list[str]] = {}
    for name, rows in methods.items():
        merged.setdefault(tuple(sorted((row.seed, row.layers, row.params) for row in rows)), []).append(name)
    return {" and ".join(names): methods[names[0]] for names in merged.values()}


def _compare(folder: StudyFolder, methods: Methods) -> Comparison:
    first = next(iter(methods.values()))[0]
    place, metric = (first.model, first.task, first.budget), METRICS[first.metric]
    if len(methods) == 1:
        return Comparison(*place, best=next(iter(methods)), other="")
    best, other, *_ = sorted(methods, key=lambda name: metric.loss(0, mean(row.value for row in methods[name])))
    others = {row.seed: row for row in methods[other]}
    pairs = [(row, others[row.seed]) for row in methods[best] if row.seed in others]
    if not pairs:
        return Comparison(*place, best, other)
    differences = np.array([_row_scores(folder, one) - _row_scores(folder, two) for one, two in pairs])
    by_row = differences.mean(0)
    return Comparison(
        *place,
        best,
        other,
        lead=mean(metric.loss(one.value, two.value) for one, two in pairs),
        wins=int((by_row > 0).sum()),
        losses=int((by_row < 0).sum()),
        p=compare_methods(differences),
        seeds=len(pairs),
    )


def _row_scores(folder: StudyFolder, row: ResultRow) -> np.ndarray:
    """(rows,) how good each prediction on dev is: 1 or 0 for right or wrong, for numbers minus the distance."""
    predicted = read_predictions(folder.cell(row.cell))
    kind, pairs = METRICS[row.metric].kind, list(zip(predicted["right"], predicted[row.strategy], strict=True))
    if kind == "number":
        return np.array([-abs(float(gold) - float(answer)) for gold, answer in pairs])
    return np.array([float(_is_right(gold, answer, tags=kind == "tags")) for gold, answer in pairs])


def _is_right(gold: str, answer: str, *, tags: bool) -> bool:
    """A tagged sentence is right if all of its tags are; "-" stands for a word without one, which cannot be wrong."""
    if not tags:
        return gold == answer
    wanted, given = gold.split(), answer.split()
    return len(wanted) == len(given) and all(one in ("-", other) for one, other in zip(wanted, given, strict=True))
