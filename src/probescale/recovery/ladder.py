"""The result of a ladder: every size that one run made, the law through them, and which to take for a wish."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from probescale.recovery.result import EvaluatedModel
from probescale.selection.scaling import ScalingLaw, fit_law
from probescale.utils.files import Record

ENOUGH = 0.95  # share of the original's metric to keep, where nothing else was asked for
FEWEST_POINTS = 4  # of a law


class LadderRung(BaseModel):
    """One size: what it was cut from, and its metrics on the dev set."""

    model_config = ConfigDict(frozen=True)

    name: str  # its budget, such as 5x
    folder: str  # of its model, in the run's folder; empty where it did not learn the task
    source: str  # what it was cut from: the original, or a larger rung
    model: EvaluatedModel
    # 95 % for all rungs together: choosing among them after a look at the figures does not make it too narrow.
    retention_interval: tuple[float, float] | None

    @property
    def alive(self) -> bool:
        return not self.model.failure

    def keeps(self, share: float) -> bool:
        """Whether it surely keeps this share of the original's metric."""
        return self.alive and self.retention_interval is not None and self.retention_interval[0] >= share


class LadderResult(Record):
    """Every rung, the largest first. Saved as ladder.json."""

    rungs: tuple[LadderRung, ...]
    original: EvaluatedModel
    answer: str  # the rung that is taken where none is named; empty where none learned the task
    wanted: float = ENOUGH  # the share of the original's metric that the answer should keep
    law: ScalingLaw | None = None  # of the metric against parameters; None: too few rungs, or less is better

    @property
    def alive(self) -> list[LadderRung]:
        return [rung for rung in self.rungs if rung.alive]

    def find(self, name: str) -> LadderRung | None:
        """The rung of this name."""
        return next((rung for rung in self.rungs if name.strip().lower() == rung.name.lower()), None)

    def keeping(self, share: float) -> LadderRung | None:
        """The smallest rung that surely keeps this share; None where none does."""
        return next((rung for rung in reversed(self.rungs) if rung.keeps(share)), None)

    def within(self, megabytes: float = float("inf"), milliseconds: float = float("inf")) -> LadderRung | None:
        """The largest rung that is no larger and no slower; None where none is."""
        fitting = (
            rung
            for rung in self.alive
            if (rung.model.megabytes or 0.0) <= megabytes and rung.model.milliseconds <= milliseconds
        )
        return next(fitting, None)


def choose_answer(rungs: Sequence[LadderRung], wanted: float = ENOUGH) -> str:
    """The smallest rung that surely keeps the wanted share; else the largest that learned the task."""
    alive = [rung for rung in rungs if rung.alive]
    sure = [rung for rung in alive if rung.keeps(wanted)]
    return sure[-1].name if sure else alive[0].name if alive else ""


def fit_ladder(original: EvaluatedModel, rungs: Sequence[LadderRung], *, lower_is_better: bool) -> ScalingLaw | None:
    """The scaling law through the original and every rung that learned the task."""
    points = [(float(model.params), model.value) for model in (original, *(rung.model for rung in rungs if rung.alive))]
    return None if lower_is_better or len(points) < FEWEST_POINTS else fit_law(points)
