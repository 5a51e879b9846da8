"""Try before choosing: what the rules propose is trained for a short while, and what learns most is kept.

First the split of the budget: fewer or more layers beside wider or narrower parts, all proposed by one rule. Then, with
the best split, one subnetwork a rule. Who learns fast is not always who ends best, so splits are tried for longer, and
in the end the best subnetworks, too. Where nobody learns anything in so short a time, probes decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from probescale.models.shrink.shrinker import ShrinkPlan
from probescale.models.subsets import Subset, format_layers
from probescale.pipeline.evaluation import Measurer
from probescale.recovery.fine_tuning import count_held_out
from probescale.utils.files import Record

RULES = ("stitched", "bottom_k", "uniform_k", "alternate", "marginal", "block_influence", "contiguous")
SPLITS = 3  # ways to share the budget out
FINALISTS = 2  # that are tried for longer, beside what probes propose
LONGER = 3  # times as many texts
LEAST = 5000  # texts
SHARE = 0.1  # of what the recipe reads
CLEAR = 0.95  # of the loss of who learns nothing: below it, something was learnt

Propose = Callable[[ShrinkPlan, str], Subset | None]  # the layers a rule keeps with this plan; None: nothing fits


class Attempt(Record):
    """One candidate, and how far it was from what it should have learnt."""

    shrink: ShrinkPlan
    kept: Subset
    rule: str  # the first that proposed it
    texts: int
    loss: float  # on texts that it did not learn from

    def sentence(self) -> str:
        beside = f"; {self.shrink}" if self.shrink else ""
        return f"layers {format_layers(self.kept)} ({self.rule}{beside}), {self.loss:.4f}"


class Attempts(Record):
    """All that was tried, in this order: what probes would choose comes first. Saved as trials.json."""

    splits: tuple[Attempt, ...] = ()
    rules: tuple[Attempt, ...] = ()  # with the best split
    finals: tuple[Attempt, ...] = ()  # the best of them again, for longer
    nothing: float = 0.0  # the loss of giving every text the same answer

    def clear(self, attempts: Sequence[Attempt]) -> bool:
        return min(one.loss for one in attempts) < CLEAR * self.nothing

    def best_of(self, attempts: Sequence[Attempt]) -> Attempt:
        return min(attempts, key=lambda one: one.loss) if self.clear(attempts) else attempts[0]

    @property
    def best(self) -> Attempt:
        return self.best_of(self.finals)

    def sentence(self) -> str:
        rounds = {"ways to share the budget out": self.splits, "choices of layers": self.rules, "of these": self.finals}
        return " ".join(self._said(attempts, what) for what, attempts in rounds.items() if attempts)

    def _said(self, attempts: Sequence[Attempt], what: str) -> str:
        number, texts, best = len(attempts), attempts[0].texts, self.best_of(attempts)
        if not self.clear(attempts):
            return (
                f"None of {number} {what} learnt anything in {texts:,} texts, so probes decided: layers "
                f"{format_layers(best.kept)}. A larger selection.trial may tell more."
            )
        after = "".join(f"; next: {one.sentence()}" for one in sorted(attempts, key=lambda one: one.loss)[1:2])
        return (
            f"{number} {what} learnt for a short while from {texts:,} texts each; nearest to what was to be learnt, by "
            f"the loss on other texts: {best.sentence()}{after}."
        )


def try_out(path: Path, measurer: Measurer, ways: Sequence[ShrinkPlan], propose: Propose) -> Attempts:
    """Train the candidates; what was tried before an interruption counts. The first of the ways is what probes say."""
    found = Attempts.load(path) if path.exists() else Attempts()
    rules = [rule for rule in RULES if propose(ways[0], rule)]
    few, many = _enough(measurer)

    def attempt(part: str, shrink: ShrinkPlan, rule: str, texts: int) -> None:
        nonlocal found
        kept, done = propose(shrink, rule), getattr(found, part)
        if kept is None or (shrink, kept) in [(one.shrink, one.kept) for one in done]:
            return
        one, nothing = _same(found, shrink, kept, texts), found.nothing
        if one is None:
            loss, nothing = measurer.made_smaller(shrink).attempt(f"{rule}, {len(kept)} layers", kept, texts)
            one = Attempt(shrink=shrink, kept=kept, rule=rule, texts=texts, loss=round(loss, 6))
        found = found.model_copy(update={part: (*done, one), "nothing": round(nothing, 6)})
        found.save(path)

    if len(ways) > 1:
        for shrink in ways[:SPLITS]:
            attempt("splits", shrink, rules[0], many)
    best = found.best_of(found.splits).shrink if found.splits else ways[0]
    for rule in rules:
        attempt("rules", best, rule, few)
    first, *others = found.rules
    for one in [first, *sorted(others, key=lambda one: one.loss)[:FINALISTS]]:
        attempt("finals", best, one.rule, many)
    return found


def _same(found: Attempts, shrink: ShrinkPlan, kept: Subset, texts: int) -> Attempt | None:
    """The same training in another round."""
    every = (*found.splits, *found.rules, *found.finals)
    return next((one for one in every if (one.shrink, one.kept, one.texts) == (shrink, kept, texts)), None)


def _enough(measurer: Measurer) -> tuple[int, int]:
    """Texts that a candidate reads, and how many if it is tried for longer."""
    config, there = measurer.config, len(measurer.task.train) + len(measurer.unlabelled or ())
    whole = config.recovery.epochs * there
    few = config.selection.trial or min(max(LEAST, round(SHARE * whole)), there - count_held_out(there))
    return few, max(few, min(LONGER * few, whole))
