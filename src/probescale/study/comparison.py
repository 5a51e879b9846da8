"""Is one strategy really better than another? Compared row by row on the same dev set, over all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from probescale.recovery.result import ORIGINAL
from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow, read_predictions

SIGNIFICANCE = 0.05  # p-values below this count as evidence


@dataclass(frozen=True)
class Comparison:
    """The best strategy under a budget, compared with the second best."""

    model: str
    task: str
    budget: str
    best: str
    other: str
    lead: float  # difference of their mean metrics
    wins: int  # rows on which only the best is right
    losses: int  # rows on which only the other is right
    p: float  # of the exact, two-sided sign test
    seeds: int

    def sentence(self) -> str:
        """The comparison and its verdict in words."""
        where = f"{self.task}, {self.model}, {self.budget}"
        if self.wins == self.losses == 0:
            return f"{where}: {self.best} and {self.other} are right on the same rows."
        counts = (
            f"is right on {self.wins} rows that {self.other} gets wrong, and wrong on {self.losses} that it gets right"
        )
        better = self.p < SIGNIFICANCE and self.lead > 0
        verdict = f"{self.best} is better" if better else "no significant difference"
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"{where}: {self.best} {counts} ({seeds}, p = {self.p:.2g}): {verdict}."


def compare_best_methods(folder: StudyFolder, rows: Sequence[ResultRow]) -> list[Comparison]:
    """One comparison for every model, task and budget with at least two strategies."""
    groups: dict[tuple[str, str, str], dict[str, list[ResultRow]]] = {}
    for row in rows:
        if row.strategy != ORIGINAL:
            methods = groups.setdefault((row.model, row.task, row.budget), {})
            methods.setdefault(row.strategy, []).append(row)
    return [_compare(folder, methods) for methods in groups.values() if len(methods) > 1]


def _compare(folder: StudyFolder, methods: dict[str, list[ResultRow]]) -> Comparison:
    best, other, *_ = sorted(methods, key=lambda name: -mean(row.value for row in methods[name]))
    others = {row.seed: row for row in methods[other]}
    pairs = [(row, others[row.seed]) for row in methods[best] if row.seed in others]
    wins = losses = 0
    for one, two in pairs:
        mine, theirs = (_correct_rows(folder, row) for row in (one, two))
        wins += sum(a and not b for a, b in zip(mine, theirs, strict=True))
        losses += sum(b and not a for a, b in zip(mine, theirs, strict=True))
    row = methods[best][0]
    lead = mean(one.value - two.value for one, two in pairs) if pairs else 0.0
    return Comparison(
        row.model, row.task, row.budget, best, other, lead, wins, losses, sign_test(wins, losses), len(pairs)
    )


def _correct_rows(folder: StudyFolder, row: ResultRow) -> list[bool]:
    """For every dev row, whether the prediction is right; a tagged sentence is right if all its tags are."""
    predicted = read_predictions(folder.cell(row.cell))
    return [a == b for a, b in zip(predicted["right"], predicted[row.strategy], strict=True)]


def sign_test(wins: int, losses: int) -> float:
    """The p-value of an exact, two-sided sign test.

    >>> sign_test(0, 0), sign_test(5, 5), round(sign_test(10, 0), 4)
    (1.0, 1.0, 0.002)
    """
    if not wins + losses:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(wins, wins + losses).pvalue)
