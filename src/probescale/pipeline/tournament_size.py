"""How large a tournament is: its rounds and the texts of a short training, by what the final training reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from probescale.pipeline.workbench import Workbench
from probescale.recovery.automatic import count_read
from probescale.selection.strategies import probing_strategy
from probescale.utils.progress import console

COST = 0.5  # of all rounds, as a share of the texts that the final training reads
COST_BELOW = 0.05  # the same for the smaller rungs of a ladder, which take over what the rung above has learned
LEAST_TRIAL = 20  # texts, the least that selection.trial allows

Round = Literal["rates", "allocations", "rules", "finals", "slow"]


@dataclass(frozen=True)
class TournamentSize:
    """What is compared, and for how long. A unit is the texts that a rule's proposal reads."""

    rates: tuple[float, ...]  # learning rates, times the usual one, which comes first
    allocations: int  # that are compared
    narrower_first: bool  # allocations with more and narrower layers than the probes' choice are tried first
    rules: int  # that are compared
    finalists: int  # that are trained for longer, besides the probes' choice
    longer: Mapping[Round, int]  # units that a candidate of each round reads
    units: int  # at most, of all rounds together
    fewest: int  # texts of a unit: after fewer, nothing can be told
    cost: float = COST  # of all rounds, as a share of the texts that the final training reads

    def texts(self, read: int) -> int:
        """The texts of a unit, before a final training that reads this many.

        >>> FULL.texts(128_000), SMALL.texts(10_000)
        (2462, 1250)
        """
        return round(self.cost * read / self.units)


FULL = TournamentSize(
    rates=(1.0, 0.4, 2.5),
    allocations=3,
    narrower_first=True,  # probes and short trainings favour few wide layers, long trainings many narrow ones
    rules=7,
    finalists=1,
    # Finals are as long as the comparison of allocations: the probes' choice is not trained for them again.
    longer={"rates": 1, "allocations": 4, "rules": 1, "finals": 4, "slow": 6},
    units=3 + 3 * 4 + 7 + 4,
    fewest=640,
)
# Where little is trained, sharing the budget out matters most: few wide layers learn faster than many narrow ones.
SMALL = TournamentSize(
    rates=(),
    allocations=3,
    narrower_first=False,
    rules=2,
    finalists=1,
    longer={"rates": 1, "allocations": 1, "rules": 1, "finals": 1, "slow": 1},
    units=3 + 1,
    fewest=960,
)
# The learning rate is that of the rung above, the rules are its best ones, and other allocations lie in the direction
# that was better there.
BELOW = TournamentSize(
    rates=(),
    allocations=2,
    narrower_first=True,
    rules=3,
    finalists=1,
    longer={"rates": 1, "allocations": 2, "rules": 1, "finals": 2, "slow": 3},
    units=2 * 2 + 3 + 2,
    fewest=480,
    cost=COST_BELOW,
)


def choose_size(bench: Workbench, read: int) -> TournamentSize | None:
    """The largest tournament that tells something before a final training that reads this many texts; None: none does.

    Where the user gives the texts of a short training, there is always one.
    """
    sizes = (BELOW,) if bench.follows else (FULL, SMALL)
    fitting = [size for size in sizes if size.texts(read) >= size.fewest]
    if fitting:
        return fitting[0]
    return sizes[0] if bench.config.selection.trial is not None else None


def has_tournament(bench: Workbench, read: int) -> bool:
    """Whether candidates are trained before a final training that reads this many texts."""
    return bench.strategy.reads == "tournament" and choose_size(bench, read) is not None


def count_tournament_texts(bench: Workbench, read: int) -> int:
    """Texts that all rounds read together, at most, before a final training that reads this many."""
    size = choose_size(bench, read)
    return size.units * (bench.config.selection.trial or size.texts(read)) if size else 0


def count_planned(bench: Workbench) -> int:
    """Texts that the final training is planned to read."""
    return count_read(bench.config.recovery, bench.situation, bench.chosen_recipe)


def texts_per_candidate(bench: Workbench) -> int:
    """Texts that a candidate in the round of rules reads; all rounds together cost less than the final training."""
    planned = count_planned(bench)
    size = choose_size(bench, planned)
    assert size, "asked for a run without a tournament"
    return bench.config.selection.trial or max(size.texts(planned), LEAST_TRIAL)


def settle_tournament(bench: Workbench) -> Workbench:
    """The same run with selection.trial filled in, as config.yaml will have it."""
    if bench.strategy.reads != "tournament":
        return bench
    return bench.with_selection(trial=texts_per_candidate(bench))


def without_pointless_tournament(bench: Workbench) -> Workbench:
    """The same run, with probes choosing the layers where a tournament would tell nothing."""
    if bench.strategy.reads != "tournament" or has_tournament(bench, count_planned(bench)):
        return bench
    strategy = probing_strategy(bench.structure.gap)
    console.print(f"the final training is too short to compare candidates first: probes choose the layers ({strategy})")
    return bench.with_selection(strategy=strategy)
