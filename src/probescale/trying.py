"""Try before choosing: what the rules propose is trained for a short while, and what learns most is kept.

First the split of the budget: fewer or more layers beside wider or narrower parts, all proposed by one rule. Then, with
the best split, one subnetwork a rule. Then the split again, by the best rule, until neither gains from the other. Where
nobody learns anything in so short a time, probes decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from probescale.files import Record
from probescale.measuring import Measurer
from probescale.models.shrink import Shrink
from probescale.recovery.recover import aside
from probescale.subsets import Subset, layers_text

RULES = ("stitched", "bottom_k", "uniform_k", "alternate", "marginal", "block_influence", "contiguous")
SPLITS = 3  # ways to share the budget out
LEAST = 5000  # texts
SHARE = 0.1  # of what the recipe reads: who learns fast is not always who ends best
CLEAR = 0.95  # of the loss of who learns nothing: below it, something was learnt

Propose = Callable[[Shrink, str], Subset | None]  # what a rule keeps beside parts of such a size; None: nothing fits


class Attempt(Record):
    """One candidate, and how far it was from what it should have learnt."""

    shrink: Shrink
    kept: Subset
    rule: str  # the first that proposed it
    loss: float  # on texts that it did not learn from


class Attempts(Record):
    """All that was tried, in this order: the first is what probes would choose. Saved as trials.json."""

    attempts: tuple[Attempt, ...] = ()
    texts: int
    nothing: float = 0.0  # the loss of giving every text the same answer

    @property
    def clear(self) -> bool:
        return min(one.loss for one in self.attempts) < CLEAR * self.nothing

    @property
    def best(self) -> Attempt:
        return min(self.attempts, key=lambda one: one.loss) if self.clear else self.attempts[0]

    def sentence(self) -> str:
        best, number = self.best, len(self.attempts)
        if not self.clear:
            return (
                f"None of {number} candidates learnt anything in {self.texts:,} texts, so probes decided: layers "
                f"{layers_text(best.kept)}. A larger selection.trial may tell more."
            )
        after = sorted(self.attempts, key=lambda one: one.loss)[1:2]
        beside = [f"; next: layers {layers_text(one.kept)} ({one.rule}; {one.shrink}), {one.loss:.4f}" for one in after]
        return (
            f"{number} candidates learnt for a short while from {self.texts:,} texts each. Layers "
            f"{layers_text(best.kept)} (proposed by {best.rule}) came nearest to what was to be learnt: loss "
            f"{best.loss:.4f} on other texts{''.join(beside)}."
        )


def try_out(path: Path, measurer: Measurer, ways: Sequence[Shrink], propose: Propose) -> Attempts:
    """Train the candidates; what was tried before an interruption counts. The first of the ways is what probes say."""
    found = Attempts(texts=_enough(measurer))
    before = Attempts.load(path) if path.exists() else found

    def attempt(shrink: Shrink, rule: str) -> None:
        nonlocal found
        kept = propose(shrink, rule)
        if kept is None or _tried(found, shrink, kept):
            return
        one, nothing = _tried(before, shrink, kept), before.nothing
        if one is None:
            loss, nothing = measurer.made_smaller(shrink).attempt(f"{rule}, {len(kept)} layers", kept, found.texts)
            one = Attempt(shrink=shrink, kept=kept, rule=rule, loss=round(loss, 6))
        found = Attempts(attempts=(*found.attempts, one), texts=found.texts, nothing=round(nothing, 6))
        if len(found.attempts) > len(before.attempts):
            found.save(path)

    rules = [rule for rule in RULES if propose(ways[0], rule)]
    last, rule = None, rules[0]
    while rule != last:  # another rule may like another split
        for shrink in ways[:SPLITS]:
            attempt(shrink, rule)
        shrink = found.best.shrink
        for other in rules:
            attempt(shrink, other)
        last, rule = rule, found.best.rule
    return found


def _tried(found: Attempts, shrink: Shrink, kept: Subset) -> Attempt | None:
    return next((one for one in found.attempts if (one.shrink, one.kept) == (shrink, kept)), None)


def _enough(measurer: Measurer) -> int:
    """Texts that a candidate reads."""
    config, there = measurer.config, len(measurer.task.train) + len(measurer.unlabelled or ())
    if config.selection.trial:
        return config.selection.trial
    return min(max(LEAST, round(SHARE * config.recovery.epochs * there)), there - aside(there))
