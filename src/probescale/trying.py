"""Try before choosing: what the rules propose is trained for a short while, and what learns most is kept.

First the layers: one subnetwork a rule, all made smaller in the same way. Then the split of the budget: the two rules
that did best, with fewer or more layers beside wider or narrower parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from probescale.files import Record
from probescale.measuring import Measurer
from probescale.models.shrink import Shrink
from probescale.recovery.recover import aside
from probescale.subsets import Subset, layers_text

RULES = ("stitched", "bottom_k", "uniform_k", "alternate", "marginal", "block_influence", "contiguous")
SPLITS = 3  # ways to share the budget out
WINNERS = 2  # rules that also propose beside other parts
LEAST = 5000  # texts
SHARE = 0.1  # of what the recipe reads: who learns fast is not always who ends best

Propose = Callable[[Shrink, str], Subset | None]  # what a rule keeps beside parts of such a size; None: nothing fits


class Attempt(Record):
    """One candidate, and how far it was from what it should have learnt."""

    shrink: Shrink
    kept: Subset
    rule: str  # the first that proposed it
    loss: float  # on texts that it did not learn from


class Attempts(Record):
    """All that was tried, the best first. Saved as trials.json."""

    attempts: tuple[Attempt, ...] = ()
    texts: int

    @property
    def best(self) -> Attempt:
        return self.attempts[0]

    def sentence(self) -> str:
        best, *others = self.attempts
        said = (
            f"{len(self.attempts)} candidates learnt for a short while from {self.texts:,} texts each. Layers "
            f"{layers_text(best.kept)} (proposed by {best.rule}) came nearest to what was to be learnt: loss "
            f"{best.loss:.4f} on other texts"
        )
        if not others:
            return f"{said}."
        after = others[0]
        return f"{said}; next: layers {layers_text(after.kept)} ({after.rule}; {after.shrink}), {after.loss:.4f}."


def try_out(path: Path, measurer: Measurer, ways: Sequence[Shrink], propose: Propose) -> Attempts:
    """Train the candidates, at most `SPLITS` of the ways among them; what was tried before an interruption counts."""
    texts = _enough(measurer)
    found = Attempts.load(path) if path.exists() else Attempts(texts=texts)

    def attempt(shrink: Shrink, rule: str) -> None:
        nonlocal found
        kept = propose(shrink, rule)
        if kept is None or (shrink, kept) in [(one.shrink, one.kept) for one in found.attempts]:
            return
        loss = measurer.made_smaller(shrink).attempt(f"{rule}, {len(kept)} layers", kept, texts)
        every = (*found.attempts, Attempt(shrink=shrink, kept=kept, rule=rule, loss=round(loss, 6)))
        found = Attempts(attempts=tuple(sorted(every, key=lambda one: one.loss)), texts=texts)
        found.save(path)

    for rule in RULES:
        attempt(ways[0], rule)
    best = [one.rule for one in found.attempts if one.shrink == ways[0]][:WINNERS]
    for shrink, rule in product(ways[1:SPLITS], best):
        attempt(shrink, rule)
    return found


def _enough(measurer: Measurer) -> int:
    """Texts that a candidate learns from."""
    config, there = measurer.config, len(measurer.task.train) + len(measurer.unlabelled or ())
    if config.selection.trial:
        return config.selection.trial
    return min(max(LEAST, round(SHARE * config.recovery.epochs * there)), there - aside(there))
