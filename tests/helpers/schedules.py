"""What a schedule reads of a run, for a model and data of any size, without loading either."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from probescale.config import RunConfig
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.pace import Pace
from probescale.pipeline.schedule import Schedule
from probescale.recovery.automatic import Situation, choose_recipe, count_read
from probescale.selection.strategies import STRATEGIES

USUAL = Situation(hidden_size=768, rate_factor=1.0, labelled=3000, unlabelled=60_000, tokens=25.0)
PACE = Pace(forward=0.002, train=0.01, train_cut=0.004)


class Bench(SimpleNamespace):
    def with_config(self, config: RunConfig) -> Bench:
        return Bench(**{**vars(self), "config": config})

    def with_rows(self, rows: int) -> Bench:
        fewer = replace(self.situation, labelled=min(rows, self.situation.labelled))
        return Bench(**{**vars(self), "situation": fewer})

    def with_dev(self, rows: int) -> Bench:
        return Bench(**{**vars(self), "task": SimpleNamespace(**{**vars(self.task), "dev": self.task.dev[:rows]})})

    def with_length(self, tokens: int) -> Bench:
        shorter = replace(self.situation, tokens=min(self.situation.tokens, float(tokens)))
        model = self.config.model.model_copy(update={"max_length": min(tokens, self.config.model.max_length)})
        return Bench(**{**vars(self), "situation": shorter, "config": self.config.model_copy(update={"model": model})})

    def with_selection(self, **settings: object) -> Bench:
        selection = self.config.selection.model_copy(update=settings)
        return self.with_config(self.config.model_copy(update={"selection": selection}))

    @property
    def rungs(self) -> dict[str, Bench]:
        names = list(self.config.selection.ladder or ())
        return {
            name: Bench(
                **{**vars(self), "rung": name, "follows": name != names[0]}
                | {"situation": replace(self.situation, times_smaller=float(name[:-1]), in_ladder=True)}
            )
            for name in names
        } or {"": self}


def make_bench(situation: Situation = USUAL, **changes) -> Any:
    """What a schedule reads of a run, for a model and data of any size."""
    raw: dict[str, Any] = {"model": {"source": "m"}, "task": {"train": "t"}, "selection": {"budget": "5x"}}
    config = RunConfig.model_validate(raw | changes)
    return Bench(
        config=config,
        situation=situation,
        loaded=SimpleNamespace(layers=12),
        task=SimpleNamespace(
            train=SimpleNamespace(names=("no", "yes")),
            dev=range(800),
            kind=SimpleNamespace(unit="text", encodes=False),
        ),
        shrinks=[ShrinkPlan(), ShrinkPlan(rank=64)],
        strategy=STRATEGIES[config.selection.strategy],
        strategies=[config.selection.strategy, *config.compared_strategies],
        chosen_recipe=choose_recipe(config.recovery, situation),
        rung="",
        follows=False,
    )


def trained(bench: Any, schedule: Schedule) -> tuple[int, int]:
    """How much is trained: texts that a subnetwork reads, epochs of the original."""
    return count_read(bench.config.recovery, bench.situation, schedule.choices), schedule.choices.original_epochs
