"""Choose layers from files of scores: of one task or several, reweighed by hand where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from probescale.errors import UserError, did_you_mean
from probescale.models.cost import Cost
from probescale.models.parameters import Parameters
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeScores
from probescale.selection.budget import Budget, Unit
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import combine_scores
from probescale.selection.result import Selection
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure


@dataclass(frozen=True)
class Weighing:
    """How scores count, where that differs from what their files say."""

    probes: dict[str, float] = field(default_factory=dict)  # w(p,T) of Eq. 1
    tasks: dict[str, float] = field(default_factory=dict)
    metric: str | None = None
    contribution: Literal["absolute", "marginal"] | None = None

    @property
    def changes_layer_scores(self) -> bool:
        return bool(self.probes or self.metric or self.contribution)


@dataclass(frozen=True)
class CountedModel:
    """A model whose config says what its layers cost."""

    source: str
    classes: int = 2
    length: int = 128
    batch_size: int = 1

    def count(self, layers: int, budget: Budget) -> tuple[Parameters, dict[Unit, Cost]]:
        """Parameters of every layer, and their costs in the other units of the budget."""
        from probescale.models.architecture import read_architecture
        from probescale.models.budget_costs import Workload, measure_costs
        from probescale.models.counting import count_from_config

        what = read_architecture(self.source, field="--model")
        if what.layers != layers:
            raise UserError(f"{self.source} has {what.layers} layers, the scores {layers}", field="--model")
        parameters = count_from_config(what.config, what.family, self.classes, field="--model")
        workload = Workload(
            what.config, what.family, classes=self.classes, length=self.length, batch_size=self.batch_size
        )
        costs = measure_costs(budget.units, workload)
        return parameters, costs


def select_from_files(
    paths: Sequence[Path],
    budget: Budget,
    strategy: str | None = None,
    *,
    weighing: Weighing,
    structure: Structure,
    counted: CountedModel | None = None,
) -> Selection:
    """The layers to keep, by the scores in these files: one file per task, all of one model."""
    if weighing.changes_layer_scores:
        strategy = _strategy_by_layer_scores(strategy)
    tasks = [_reweighed(load_scores(path), weighing) for path in paths]
    evidence, resamples = combine_scores(tasks, _task_weights(weighing.tasks, [task.task for task in tasks]))
    parameters, costs = tasks[0].parameters, {}
    if counted:
        parameters, costs = counted.count(evidence.layers, budget)
    provenance = tasks[0].provenance if len(tasks) == 1 else {"tasks": {task.task: task.provenance for task in tasks}}
    constraints = Constraints(budget, parameters, costs, structure)
    selection = select(evidence, constraints, strategy, resamples=resamples, provenance=provenance)
    if STRATEGIES[selection.strategy].reads != "relevance":  # it does not use the probes' weights
        return selection
    return selection.model_copy(update={"reason": " ".join(filter(None, (task.weights_note for task in tasks)))})


def parse_weights(words: Sequence[str], field: str, what: str) -> dict[str, float]:
    """The weights by name, from words like NAME=NUMBER.

    >>> parse_weights(["pos=0.5"], "--weight", "PROBE")
    {'pos': 0.5}
    """
    weights = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            weights[name] = float(value)
        except ValueError as error:
            raise UserError(f'"{word}" is not {what}=NUMBER', field=field) from error
        if not 0 <= weights[name] < float("inf"):
            raise UserError(f"the weight of {name} is {value}", field=field, hint="weights are 0 or more")
    return weights


def _reweighed(scores: ProbeScores, weighing: Weighing) -> ProbeScores:
    weighted = scores.with_weights(weighing.probes) if weighing.probes else scores
    return weighted.with_metric(weighing.metric, weighing.contribution)


def _strategy_by_layer_scores(strategy: str | None) -> str:
    """Probe weights, measures and credit change the scores of layers, which stitched strategies do not read."""
    if strategy in STRATEGIES and STRATEGIES[strategy].reads in ("blocks", "search", "all subsets"):
        raise UserError(
            f"{strategy} uses probes of subnetworks, which --weight, --metric and --contribution do not change",
            field="--strategy",
            hint="leave them out, or use contiguous, best_scores or marginal",
        )
    return strategy or "contiguous"


def _task_weights(weights: dict[str, float], tasks: list[str]) -> list[float]:
    """1 for every task that is not named."""
    if unknown := [name for name in weights if name not in tasks]:
        raise UserError(
            f'no SCORES are of the task "{unknown[0]}".{did_you_mean(unknown[0], tasks)}',
            field="--task-weight",
            hint=f"use one of: {', '.join(tasks)}",
        )
    return [weights.get(task, 1.0) for task in tasks]
