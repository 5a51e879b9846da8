"""Choose by short trainings: what the rules propose is trained for a while, and what learns most wins.

Four rounds, each with what the round before decided: learning rates; allocations of the budget (fewer or more layers
with larger or smaller other parts); the rules that choose layers; and the finals. What learns fast does not always end
best, so allocations and finalists are trained for longer. All rounds together read fewer texts than the final training.
Where nothing learns anything in so short a time, allocations are trained for longer instead, and the probes' choice of
layers wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_layers
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.workbench import Workbench
from probescale.recovery.automatic import count_read
from probescale.selection.evidence import Evidence
from probescale.utils.files import Record
from probescale.utils.progress import console

RULES = ("stitched", "bottom_k", "uniform_k", "alternate", "marginal", "block_influence", "contiguous")
RATES = (0.4, 1.0, 2.5)  # times the usual learning rate
CLEARLY_BETTER = 0.9  # share of the loss: short trainings favour high rates, so a higher one has to be far better
ALLOCATIONS = 3  # that are compared
FINALISTS = 1  # that are trained for longer, besides the probes' choice
LONGER = {"rates": 1, "allocations": 2, "rules": 1, "finals": 4, "slow": 4}  # texts, times those of a rule
COST = 0.5  # of all rounds, as a share of the texts that the final training reads
MOST_COST_UNITS = 2 + 3 * 2 + 6 + 2 * 4  # texts of all rounds, in those of a rule
FEWEST_TEXTS = 640  # per candidate: after fewer, nothing can be told
LEARNED = 0.95  # of a constant predictor's loss: below it, something was learned

Round = Literal["rates", "allocations", "rules", "finals", "slow"]


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

    rates: tuple[Candidate, ...] = ()  # learning rates, for the probes' choice
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
        """The best rate; None where none was tried, or nothing learned anything."""
        if not self.rates or not self.has_learned(self.rates):
            return None
        ranked = sorted(self.rates, key=lambda each: each.learning_rate)
        best = ranked[0]
        for faster in ranked[1:]:
            best = faster if faster.loss < CLEARLY_BETTER * best.loss else best
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

    def find(self, shrink: ShrinkPlan, kept: Subset, texts: int, rate: float) -> Candidate | None:
        """The same training in another round."""
        wanted = (shrink, kept, texts, rate)
        same = (each for each in self.every if (each.shrink, each.kept, each.texts, each.learning_rate) == wanted)
        return next(same, None)

    def summary(self) -> str:
        rounds = {
            "ways to share the budget out": self.slow or self.allocations,
            "choices of layers": self.rules,
            "of these": self.finals if len(self.finals) > 1 else (),
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
        self.texts = texts_per_candidate(bench)
        self.rate = evaluator.training.choices.learning_rate

    def play(self, shrinks: Sequence[ShrinkPlan]) -> Tournament:
        rules = [rule for rule in RULES if self._propose(rule, shrinks[0])]
        if self.evaluator.config.recovery.learning_rate == "auto":
            self._compare_rates(shrinks[0], rules[0])
        best = self._best_allocation(shrinks[:ALLOCATIONS], rules[0])
        if self.state.slow:  # nothing learns fast enough to compare rules
            self._train("finals", best, rules[0], LONGER["slow"])
            return self.state
        for rule in rules:
            self._train("rules", best, rule)
        probes_choice, *others = self.state.rules
        for candidate in [probes_choice, *sorted(others, key=lambda each: each.loss)[:FINALISTS]]:
            self._train("finals", best, candidate.rule)
        return self.state

    def _compare_rates(self, shrink: ShrinkPlan, rule: str) -> None:
        usual = self.rate
        for factor in RATES:
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
        return self.state.rank(tried)[0].shrink

    def _propose(self, rule: str, shrink: ShrinkPlan) -> Subset | None:
        return self.bench.propose(rule, self.evidence, shrink)

    def _train(self, part: Round, shrink: ShrinkPlan, rule: str, longer: int | None = None) -> None:
        kept, done, texts = (
            self._propose(rule, shrink),
            getattr(self.state, part),
            self.texts * (longer or LONGER[part]),
        )
        if kept is None or (shrink, kept, self.rate) in [(one.shrink, one.kept, one.learning_rate) for one in done]:
            return
        candidate, constant = self.state.find(shrink, kept, texts, self.rate), self.state.constant_loss
        if candidate is None:
            training = self.evaluator.training.with_shrink(shrink)
            found = training.train_briefly(f"{rule}, {len(kept)} layers", kept, texts, self.rate)
            constant = found.constant
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


def texts_per_candidate(bench: Workbench) -> int:
    """How many texts a rule's proposal reads: all rounds together cost less than the planned final training."""
    planned = count_read(bench.config.recovery, bench.situation, bench.chosen_recipe)
    return bench.config.selection.trial or plan_texts(planned)


def plan_texts(read: int) -> int:
    """Texts per rule, for a final training that reads this many.

    >>> plan_texts(128_000), plan_texts(3000)
    (2909, 68)
    """
    return round(COST * read / MOST_COST_UNITS)


def has_tournament(bench: Workbench, read: int) -> bool:
    """Whether candidates are trained before a final training that reads this many texts: after too few of them, short
    trainings tell nothing."""
    enough = bench.config.selection.trial is not None or plan_texts(read) >= FEWEST_TEXTS
    return bench.strategy.reads == "tournament" and enough


def without_pointless_tournament(bench: Workbench) -> Workbench:
    """The same run, with probes choosing the layers where a tournament would tell nothing."""
    config = bench.config
    read = count_read(config.recovery, bench.situation, bench.chosen_recipe)
    if bench.strategy.reads != "tournament" or has_tournament(bench, read):
        return bench
    strategy = "stitched" if bench.structure.gap == 1 else "marginal"
    console.print(f"too little is trained for short trainings to tell anything: probes choose the layers ({strategy})")
    selection = config.selection.model_copy(update={"strategy": strategy})
    return bench.with_config(config.model_copy(update={"selection": selection}))
