"""Choose by short trainings: what the rules propose is trained for a while, and what learns most wins.

The first round compares allocations of the budget: fewer or more layers with larger or smaller other parts, all
proposed by one rule. The second round compares the rules with the best allocation. What learns fast does not always end
best, so allocations are trained for longer, and so are the finalists of the second round. Where nothing learns anything
in so short a time, the probes' choice wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_layers
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.workbench import Workbench
from probescale.recovery.short_training import count_held_out
from probescale.selection.evidence import Evidence
from probescale.utils.files import Record

RULES = ("stitched", "bottom_k", "uniform_k", "alternate", "marginal", "block_influence", "contiguous")
ALLOCATIONS = 3  # that are compared
FINALISTS = 2  # that are trained for longer, besides the probes' choice
LONGER = 3  # times as many texts
FEWEST_TEXTS = 5000
SHARE = 0.1  # of the texts that the recipe reads
LEARNED = 0.95  # of a constant predictor's loss: below it, something was learned

Round = Literal["allocations", "rules", "finals"]


class Candidate(Record):
    """A subnetwork that was trained for a short while, and its loss on texts that it did not learn from."""

    shrink: ShrinkPlan
    kept: Subset
    rule: str  # the first that proposed it
    texts: int
    loss: float

    def describe(self) -> str:
        shrunk = f"; {self.shrink}" if self.shrink else ""
        return f"layers {format_layers(self.kept)} ({self.rule}{shrunk}), {self.loss:.4f}"


class Tournament(Record):
    """All candidates in the order of their training; the probes' choice comes first. Saved as tournament.json."""

    allocations: tuple[Candidate, ...] = ()
    rules: tuple[Candidate, ...] = ()  # with the best allocation
    finals: tuple[Candidate, ...] = ()  # the best of them again, for longer
    constant_loss: float = 0.0  # of a predictor that gives every text the same answer

    def has_learned(self, candidates: Sequence[Candidate]) -> bool:
        return min(candidate.loss for candidate in candidates) < LEARNED * self.constant_loss

    def rank(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best first; where none has learned anything, in the order of the probes."""
        return sorted(candidates, key=lambda each: each.loss) if self.has_learned(candidates) else list(candidates)

    @property
    def winner(self) -> Candidate:
        return self.rank(self.finals)[0]

    @property
    def ranking(self) -> tuple[Subset, ...]:
        """The finalists' layers, the winner's first."""
        return tuple(candidate.kept for candidate in self.rank(self.finals))

    def find(self, shrink: ShrinkPlan, kept: Subset, texts: int) -> Candidate | None:
        """The same training in another round."""
        every = (*self.allocations, *self.rules, *self.finals)
        wanted = (shrink, kept, texts)
        return next((each for each in every if (each.shrink, each.kept, each.texts) == wanted), None)

    def summary(self) -> str:
        rounds = {
            "ways to share the budget out": self.allocations,
            "choices of layers": self.rules,
            "of these": self.finals,
        }
        return " ".join(self._summarise(candidates, what) for what, candidates in rounds.items() if candidates)

    def _summarise(self, candidates: Sequence[Candidate], what: str) -> str:
        number, texts, ranked = len(candidates), candidates[0].texts, self.rank(candidates)
        if not self.has_learned(candidates):
            return (
                f"None of {number} {what} learned anything in {texts:,} texts, so probes decided: layers "
                f"{format_layers(ranked[0].kept)}. A larger selection.trial may tell more."
            )
        second = "".join(f"; next: {each.describe()}" for each in ranked[1:2])
        return (
            f"{number} {what} were trained briefly on {texts:,} texts each; lowest loss on other texts: "
            f"{ranked[0].describe()}{second}."
        )


def run_tournament(
    bench: Workbench, evaluator: Evaluator, shrinks: Sequence[ShrinkPlan], evidence: Evidence, path: Path
) -> Tournament:
    """Train the candidates, resuming from what the file holds. The first way of shrinking is the probes' choice."""
    return _Rounds(bench, evaluator, evidence, path).play(shrinks)


class _Rounds:
    """A tournament under way, saved after every training."""

    def __init__(self, bench: Workbench, evaluator: Evaluator, evidence: Evidence, path: Path) -> None:
        self.bench, self.evaluator, self.evidence, self.path = bench, evaluator, evidence, path
        self.state = Tournament.load(path) if path.exists() else Tournament()
        self.few, self.many = _texts_per_candidate(evaluator)

    def play(self, shrinks: Sequence[ShrinkPlan]) -> Tournament:
        rules = [rule for rule in RULES if self._propose(rule, shrinks[0])]
        if len(shrinks) > 1:
            for shrink in shrinks[:ALLOCATIONS]:
                self._train("allocations", shrink, rules[0], self.many)
        best = self.state.rank(self.state.allocations)[0].shrink if self.state.allocations else shrinks[0]
        for rule in rules:
            self._train("rules", best, rule, self.few)
        probes_choice, *others = self.state.rules
        for candidate in [probes_choice, *sorted(others, key=lambda each: each.loss)[:FINALISTS]]:
            self._train("finals", best, candidate.rule, self.many)
        return self.state

    def _propose(self, rule: str, shrink: ShrinkPlan) -> Subset | None:
        return self.bench.propose(rule, self.evidence, shrink)

    def _train(self, part: Round, shrink: ShrinkPlan, rule: str, texts: int) -> None:
        kept, done = self._propose(rule, shrink), getattr(self.state, part)
        if kept is None or (shrink, kept) in [(each.shrink, each.kept) for each in done]:
            return
        candidate, constant = self.state.find(shrink, kept, texts), self.state.constant_loss
        if candidate is None:
            title = f"{rule}, {len(kept)} layers"
            loss, constant = self.evaluator.with_shrink(shrink).train_briefly(title, kept, texts)
            candidate = Candidate(shrink=shrink, kept=kept, rule=rule, texts=texts, loss=round(loss, 6))
        update = {part: (*done, candidate), "constant_loss": round(constant, 6)}
        self.state = self.state.model_copy(update=update)
        self.state.save(self.path)


def _texts_per_candidate(evaluator: Evaluator) -> tuple[int, int]:
    """How many texts a candidate reads, and how many where it is trained for longer."""
    config = evaluator.config
    available = len(evaluator.task.train) + len(evaluator.unlabelled or ())
    recipe = config.recovery.epochs * available
    few = config.selection.trial or min(max(FEWEST_TEXTS, round(SHARE * recipe)), available - count_held_out(available))
    return few, max(few, min(LONGER * few, recipe))
