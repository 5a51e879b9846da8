"""Choose by short trainings: what the rules propose is trained for a while, and what learns most wins.

Four rounds, each with what the round before decided: learning rates; allocations of the budget (fewer or more layers
with larger or smaller other parts); the rules that choose layers; and the finals. What learns fast does not always end
best, so allocations and finalists are trained for longer. All rounds together read fewer texts than the final training.
Where nothing learns anything in so short a time, allocations are trained for longer instead, and the probes' choice of
layers wins. Before a short final training, only allocations and two rules are compared (tournament_size.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probescale.errors import Diverged
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_layers
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.tournament_size import FULL, Round, choose_size, count_planned, texts_per_candidate
from probescale.pipeline.training import Training
from probescale.pipeline.workbench import Workbench
from probescale.recovery.short_training import ShortTraining
from probescale.selection.evidence import Evidence
from probescale.utils.files import Record

RULES = ("stitched", "uniform_k", "bottom_k", "alternate", "marginal", "block_influence", "contiguous")
# Shares of the loss. Short trainings favour high rates and few layers; long ones do not.
BETTER_RATE = 0.75  # below it, a rate other than the usual one is taken
AS_GOOD = 0.9  # above it, more and narrower layers are taken, although fewer have learned a little more
DIVERGED = 1e6  # the loss of a training whose weights are no longer finite
LEARNED = 0.95  # of a constant predictor's loss: below it, something was learned


@dataclass(frozen=True)
class Lessons:
    """What the tournaments of larger rungs found, for that of the next smaller one."""

    rate: float = 1.0  # the best learning rate, times the usual one
    rules: tuple[str, ...] = RULES  # the best first, but for the probes' choice, which always comes first
    narrower_first: bool = True  # many narrow layers were at least as good as few wide ones


class Candidate(Record):
    """A subnetwork that was trained for a short while, and its loss on texts that it did not learn from."""

    shrink: ShrinkPlan
    kept: Subset
    rule: str  # the first that proposed it
    learning_rate: float
    texts: int
    loss: float
    seconds: float

    def describe(self) -> str:
        shrunk = f"; {self.shrink}" if self.shrink else ""
        return f"layers {format_layers(self.kept)} ({self.rule}{shrunk}), {self.loss:.4f}"


class Tournament(Record):
    """All candidates in the order of their training; the probes' choice comes first. Saved as tournament.json."""

    rates: tuple[Candidate, ...] = ()  # learning rates, for the probes' choice; the usual one first
    allocations: tuple[Candidate, ...] = ()
    slow: tuple[Candidate, ...] = ()  # the allocations again, for longer, where none of them learned anything
    rules: tuple[Candidate, ...] = ()  # with the best allocation
    finals: tuple[Candidate, ...] = ()  # the best of them again, for longer
    constant_loss: float = 0.0  # of a predictor that gives every text the same answer

    def has_learned(self, candidates: Sequence[Candidate]) -> bool:
        return min(candidate.loss for candidate in candidates) < LEARNED * self.constant_loss

    @property
    def every(self) -> tuple[Candidate, ...]:
        return (*self.rates, *self.allocations, *self.slow, *self.rules, *self.finals)

    @property
    def seconds(self) -> float:
        """How long all short trainings took."""
        return sum(
            {(str(one.shrink), one.kept, one.texts, one.learning_rate): one.seconds for one in self.every}.values()
        )

    @property
    def learning_rate(self) -> float | None:
        """The usual rate, or another that is clearly better; None where none was tried, or nothing learned anything."""
        if not self.rates or not self.has_learned(self.rates):
            return None
        best = self.rates[0]
        for other in self.rates[1:]:
            best = other if other.loss < BETTER_RATE * best.loss else best
        return best.learning_rate

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

    def teach(self, before: Lessons) -> Lessons:
        """What to try at the next smaller size, with what was known `before`."""
        usual, best = self.rates[0].learning_rate if self.rates else None, self.learning_rate
        ranked = [each.rule for each in self.rank(self.rules)] if self.rules else []
        known = (*ranked, *before.rules)
        tried = self.slow or self.allocations
        return Lessons(
            rate=best / usual if usual and best else before.rate,
            rules=tuple(dict.fromkeys((RULES[0], *known))),
            narrower_first=len(self.winner.kept) >= len(tried[0].kept) if len(tried) > 1 else before.narrower_first,
        )

    def find(self, shrink: ShrinkPlan, kept: Subset, texts: int, rate: float) -> Candidate | None:
        """The same training in another round."""
        wanted = (shrink, kept, texts, rate)
        same = (each for each in self.every if (each.shrink, each.kept, each.texts, each.learning_rate) == wanted)
        return next(same, None)

    def summary(self) -> str:
        rounds = {
            "ways to share the budget out": self.slow or self.allocations,
            "choices of layers": self.rules,
            "of these": self.finals if self._finals_are_longer() else (),
        }
        sentences = [self._summarise(candidates, what) for what, candidates in rounds.items() if candidates]
        allocations = self.slow or self.allocations
        if allocations and self.rank(allocations)[0].shrink != self.winner.shrink:
            why = "as more and narrower layers end better after a long training"
            sentences.insert(1, f"{len(self.winner.kept)} layers were about as good and are kept, {why}.")
        return " ".join(sentences)

    def _finals_are_longer(self) -> bool:
        return len(self.finals) > 1 and self.finals[0].texts > self.rules[0].texts

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
    bench: Workbench,
    evaluator: Evaluator,
    shrinks: Sequence[ShrinkPlan],
    evidence: Evidence,
    path: Path,
    lessons: Lessons | None = None,
) -> Tournament:
    """Train the candidates, resuming from what the file holds. The first way of shrinking is the probes' choice.

    `lessons`: of the rung above, in a ladder.
    """
    return _Rounds(bench, evaluator, evidence, path, lessons or Lessons()).play(shrinks)


class _Rounds:
    """A tournament under way, saved after every training."""

    def __init__(
        self, bench: Workbench, evaluator: Evaluator, evidence: Evidence, path: Path, lessons: Lessons
    ) -> None:
        self.bench, self.evaluator, self.evidence, self.path = bench, evaluator, evidence, path
        self.lessons = lessons
        self.state = Tournament.load(path) if path.exists() else Tournament()
        self.texts, self.size = texts_per_candidate(bench), choose_size(bench, count_planned(bench)) or FULL
        self.rate = evaluator.training.choices.learning_rate

    def play(self, shrinks: Sequence[ShrinkPlan]) -> Tournament:
        rules = [rule for rule in self.lessons.rules if self._propose(rule, shrinks[0])][: self.size.rules]
        if self.evaluator.config.recovery.learning_rate == "auto":
            self._compare_rates(shrinks[0], rules[0])
        best = self._best_allocation(self._nearest(shrinks, rules[0]), rules[0])
        if self.state.slow:  # nothing learns fast enough to compare rules
            self._train("finals", best, rules[0], self.size.longer["slow"])
            return self.state
        for rule in rules:
            self._train("rules", best, rule)
        probes_choice, *others = self.state.rules
        for candidate in [probes_choice, *sorted(others, key=lambda each: each.loss)[: self.size.finalists]]:
            self._train("finals", best, candidate.rule)
        return self.state

    def _nearest(self, shrinks: Sequence[ShrinkPlan], rule: str) -> list[ShrinkPlan]:
        """The probes' choice, and those ways of shrinking that leave the next larger or smaller numbers of layers."""
        counts = {shrink: len(self._propose(rule, shrink) or ()) for shrink in shrinks}
        usual, narrower_first = counts[shrinks[0]], self.size.narrower_first and self.lessons.narrower_first

        def distance(shrink: ShrinkPlan) -> tuple[bool, int]:
            more = counts[shrink] - usual
            wrong_side = more < 0 if narrower_first else more > 0
            return wrong_side, abs(more)

        return sorted(shrinks, key=distance)[: self.size.allocations]

    def _compare_rates(self, shrink: ShrinkPlan, rule: str) -> None:
        usual = self.rate
        for factor in self.size.rates:
            self.rate = float(f"{factor * usual:.1e}")
            self._train("rates", shrink, rule)
        self.rate = self.state.learning_rate or usual

    def _best_allocation(self, shrinks: Sequence[ShrinkPlan], rule: str) -> ShrinkPlan:
        if len(shrinks) == 1:
            return shrinks[0]
        for part in ("allocations", "slow"):
            for shrink in shrinks:
                self._train(part, shrink, rule)
            tried = getattr(self.state, part)
            if self.state.has_learned(tried):
                break
        return self._deepest(self.state.rank(tried)).shrink

    def _deepest(self, ranked: Sequence[Candidate]) -> Candidate:
        """The best, or before a long final training the one with most layers that is about as good."""
        if not self.size.narrower_first or not self.state.has_learned(ranked):
            return ranked[0]
        good = [each for each in ranked if AS_GOOD * each.loss <= ranked[0].loss]
        return max(good, key=lambda each: len(each.kept))

    def _propose(self, rule: str, shrink: ShrinkPlan) -> Subset | None:
        return self.bench.propose(rule, self.evidence, shrink)

    def _train(self, part: Round, shrink: ShrinkPlan, rule: str, longer: int | None = None) -> None:
        kept, done, texts = (
            self._propose(rule, shrink),
            getattr(self.state, part),
            self.texts * (longer or self.size.longer[part]),
        )
        if kept is None or (shrink, kept, self.rate) in [(one.shrink, one.kept, one.learning_rate) for one in done]:
            return
        candidate, constant = self.state.find(shrink, kept, texts, self.rate), self.state.constant_loss
        if candidate is None:
            training = self.evaluator.training.with_shrink(shrink)
            found = self._train_briefly(training, f"{rule}, {len(kept)} layers", kept, texts)
            constant = found.constant or constant
            candidate = Candidate(
                shrink=shrink,
                kept=kept,
                rule=rule,
                learning_rate=self.rate,
                texts=texts,
                loss=round(found.loss, 6),
                seconds=round(found.seconds, 1),
            )
        update = {part: (*done, candidate), "constant_loss": round(constant, 6)}
        self.state = self.state.model_copy(update=update)
        self.state.save(self.path)

    def _train_briefly(self, training: Training, name: str, kept: Subset, texts: int) -> ShortTraining:
        """A short training; one that diverges at a rate of ours has an enormous loss, and does not end the run."""
        started = time.monotonic()
        try:
            return training.train_briefly(name, kept, texts, self.rate)
        except Diverged:
            if self.evaluator.config.recovery.learning_rate != "auto":
                raise
            return ShortTraining(DIVERGED, 0.0, time.monotonic() - started)
