"""What a run prepares once and hands on: task, model, shrinker, budget, structure, costs, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.models.budget_costs import Workload, measure_costs
from probescale.models.cost import Cost
from probescale.models.loading import LoadedModel
from probescale.models.shrink.options import find_smallest, list_shrinks
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.shrinker import Shrinker
from probescale.models.subsets import Subset
from probescale.recovery.automatic import Situation, choose_recipe
from probescale.recovery.inputs import build_inputs
from probescale.recovery.recipe import Choices
from probescale.selection.budget import Budget, Unit, parse_budget
from probescale.selection.constraints import FLOAT32, Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.ladder import parse_ladder
from probescale.selection.result import Selection
from probescale.selection.select import largest_k, select, select_subset
from probescale.selection.strategies import STRATEGIES, Reads, Strategy
from probescale.selection.structure import Structure
from probescale.tasks.balance import find_dominant
from probescale.tasks.documents import Documents
from probescale.tasks.sampling import spread
from probescale.tasks.task import Task
from probescale.tasks.unlabelled import joined
from probescale.utils.files import read_as, write_json

USUAL_TIMES_SMALLER = 5.0
OF_PARAMETER: dict[Unit, float] = {"parameters": 1.0, "megabytes": FLOAT32 / 1e6}  # what one is in these units
COUNTED_TEXTS = 500  # whose tokens are counted, to know how long texts are
FEWEST_BLOCKS = 4  # of running text


@dataclass(frozen=True)
class Workbench:
    """What all steps of a run share: configuration, task, model, ways of shrinking, and provenance."""

    config: RunConfig
    task: Task
    loaded: LoadedModel  # with a new head, before any training
    shrinker: Shrinker
    provenance: dict[str, Any]
    costs: Mapping[Unit, Cost] | None = None  # in units other than parameters; None: not measured yet
    recipe: Choices | None = None  # of the trainings; None: not chosen yet
    rung: str = ""  # the name of this size in a ladder; empty without one
    follows: bool = False  # a smaller rung, whose tournament builds on that of the rung above

    @property
    def chosen_recipe(self) -> Choices:
        """The recipe that was chosen; without a measurement of this machine, by the rules alone."""
        return self.recipe or choose_recipe(self.config.recovery, self.situation)

    @cached_property
    def situation(self) -> Situation:
        """What a recipe is chosen by."""
        if self.task.kind.unit == "token":
            return self._situation_of_text()
        texts = joined(self.task.train, self.task.unlabelled)
        some = texts.take(spread(len(texts), COUNTED_TEXTS))
        lengths = build_inputs(self.loaded.tokenizer, some, self.config.model.max_length).tokens.lengths
        return Situation(
            hidden_size=self.loaded.model.config.hidden_size,
            rate_factor=self.loaded.family.learning_rate_factor,
            labelled=len(self.task.train),
            unlabelled=len(self.task.unlabelled or ()),
            tokens=float(lengths.mean()),
            already_trained=self.loaded.head_is_trained,
            times_smaller=self.times_smaller,
            in_ladder=bool(self.rung),
            rare_labels=self.task.metric in ("f1", "macro_f1") and find_dominant(self.task.train) is not None,
        )

    def _situation_of_text(self) -> Situation:
        """The same for running text, whose inputs are blocks."""
        train = cast("Documents", self.task.train)
        blocks = build_inputs(self.loaded.tokenizer, train, self.config.model.max_length)
        tokens = int(blocks.tokens.lengths.sum())
        if train.chats is None and tokens < FEWEST_BLOCKS * self.config.model.max_length:
            raise UserError(
                f"train has {tokens:,} tokens, which are less than {FEWEST_BLOCKS} blocks of "
                f"{self.config.model.max_length}",
                field="task.train",
                hint="give more text, or shorter blocks: model.max_length",
            )
        return Situation(
            hidden_size=self.loaded.model.config.hidden_size,
            rate_factor=self.loaded.family.learning_rate_factor,
            labelled=0,
            unlabelled=len(blocks),
            tokens=float(blocks.tokens.lengths.mean()),
            already_trained=not self.config.recovery.original.retrain,
            times_smaller=self.times_smaller,
            running_text=True,
        )

    @property
    def times_smaller(self) -> float:
        """How many times fewer parameters the budget allows; for budgets in other units, about what is usual."""
        allowed = self.allowed_parameters
        return USUAL_TIMES_SMALLER if allowed is None else self.shrinker.original.total / max(allowed, 1)

    @property
    def allowed_parameters(self) -> float | None:
        """The most parameters that the budget allows, also in megabytes; None where it is in units of time or work."""
        total = self.shrinker.original.total
        limits = [limit for limit in self.budget.limits if limit.unit in OF_PARAMETER]
        return min((limit.most(total) / OF_PARAMETER[limit.unit] for limit in limits), default=None)

    @property
    def shrinks(self) -> list[ShrinkPlan]:
        """Every way of shrinking that the settings allow."""
        ways, settings = self.shrinker.ways, self.config.shrink
        if settings not in ways:
            ways[settings] = list_shrinks(self.shrinker, settings)
        return ways[settings]

    @cached_property
    def smallest_shrink(self) -> ShrinkPlan:
        """The way of shrinking that leaves room for most layers."""
        return find_smallest(self.shrinker, self.shrinks)

    @property
    def budget(self) -> Budget:
        """Of a ladder, that of its largest rung."""
        selection = self.config.selection
        return parse_budget(parse_ladder(selection.ladder)[0] if selection.ladder else selection.budget, selection.k)

    @cached_property
    def rungs(self) -> dict[str, Workbench]:
        """The same for every size of a ladder, the largest first; without a ladder, this alone, without a name.

        Of the usual sizes, those are left out that nothing is small enough for.
        """
        ladder = self.config.selection.ladder
        if not ladder:
            return {"": self}
        names = parse_ladder(ladder)
        found = {name: replace(self.with_budget(name), rung=name, follows=name != names[0]) for name in names}
        return {name: bench for name, bench in found.items() if ladder != "auto" or bench.fits()}

    @property
    def structure(self) -> Structure:
        return Structure.from_config(self.config.selection)

    @property
    def strategy(self) -> Strategy:
        return STRATEGIES[self.config.selection.strategy]

    @property
    def strategies(self) -> list[str]:
        """The run's own strategy, then those it is compared with."""
        return list(dict.fromkeys((self.config.selection.strategy, *self.config.compared_strategies)))

    @property
    def needs(self) -> set[Reads]:
        """Everything that is measured before the strategies can choose."""
        return set[Reads]().union(*(STRATEGIES[name].needs for name in self.strategies))

    def constraints(self, shrink: ShrinkPlan) -> Constraints:
        """Budget and structure for subnetworks whose parts have these sizes."""
        costs: dict[Unit, Cost] = {unit: cost.narrowed(shrink.units) for unit, cost in (self.costs or {}).items()}
        return Constraints(self.budget, self.shrinker.count_parameters(shrink), costs, self.structure)

    def most_layers(self) -> int:
        """The most layers that any of the strategies can keep, as far as parameters and megabytes allow."""
        limits = tuple(limit for limit in self.budget.limits if limit.unit in OF_PARAMETER)
        constraints = self.constraints(self.smallest_shrink)
        return self._most_layers(replace(constraints, budget=replace(self.budget, limits=limits)))

    def check_budget(self) -> None:
        """Refuse a budget that no subnetwork meets, in any of its units; of a ladder, any rung."""
        for rung in self.rungs.values():
            rung._most_layers(rung.constraints(rung.smallest_shrink))
        if not self.rungs:
            self._most_layers(self.constraints(self.smallest_shrink))

    def fits(self) -> bool:
        """Whether any subnetwork has as few parameters as the budget allows, however it is shrunk."""
        try:
            replace(self, costs={}).most_layers()
        except UserError:
            return False
        return True

    def _most_layers(self, constraints: Constraints) -> int:
        return max(largest_k(self.loaded.layers, constraints, name) for name in self.strategies)

    def propose(self, strategy: str, evidence: Evidence, shrink: ShrinkPlan) -> Subset | None:
        """The layers that a strategy keeps within the budget beside parts of this size; None: nothing fits."""
        if STRATEGIES[strategy].contiguous and self.structure.gap > 1:
            return None
        return select_subset(evidence, self.constraints(shrink), strategy)

    def select(
        self, strategy: str, evidence: Evidence, shrink: ShrinkPlan, resamples: Sequence[Evidence] = ()
    ) -> Selection:
        """The strategy's choice within the budget. `resamples`: the same evidence on resampled held-out rows."""
        constraints = self.constraints(shrink)
        return select(evidence, constraints, strategy, resamples=resamples, provenance=self.provenance)

    def with_config(self, config: RunConfig) -> Workbench:
        """The same task, model and texts for a configuration that differs in strategy, budget or recipe alone."""
        return replace(self, config=config)

    def with_selection(self, **settings: object) -> Workbench:
        """The same with other settings of `selection`."""
        selection = self.config.selection.model_copy(update=settings)
        return self.with_config(self.config.model_copy(update={"selection": selection}))

    def with_budget(self, budget: str) -> Workbench:
        """The same for one size."""
        return self.with_selection(budget=budget, k=None, ladder=None)

    def with_rows(self, rows: int) -> Workbench:
        """The same with so many of the labelled rows, to estimate what they take."""
        if rows >= self.situation.labelled:
            return self
        train = self.task.kind.draw(self.task.train, rows, self.config.seed)
        return replace(self, task=replace(self.task, train=train))

    def with_dev(self, rows: int) -> Workbench:
        """The same with at most so many rows of dev, to estimate what they take."""
        dev = self.task.kind.draw(self.task.dev, rows, self.config.seed)
        return replace(self, task=replace(self.task, dev=dev))

    def with_length(self, tokens: int) -> Workbench:
        """The same with texts of at most so many tokens, to estimate what they take."""
        model = self.config.model.model_copy(update={"max_length": min(tokens, self.config.model.max_length)})
        return self.with_config(self.config.model_copy(update={"model": model}))

    def with_recipe(self, recipe: Choices) -> Workbench:
        """The same with a recipe that was chosen for the trainings."""
        return replace(self, recipe=recipe)

    def with_costs(self, path: Path) -> Workbench:
        """Measure what layers cost in the budget's units; kept in a file, as times differ when measured again."""
        if self.budget.units <= {"parameters", "megabytes"}:
            return replace(self, costs={})
        if not path.exists():
            write_json(path, {unit: cost.model_dump() for unit, cost in self._measure_costs().items()})
        return replace(self, costs=read_as(path, dict[Unit, Cost]))

    def _measure_costs(self) -> dict[Unit, Cost]:
        model, family, settings = self.loaded.model, self.loaded.family, self.config.selection
        workload = Workload(
            model.config,
            family,
            self.task.kind.head,
            classes=len(model.config.id2label or ()),
            length=settings.length,
            batch_size=settings.batch_size,
        )
        return measure_costs(self.budget.units, workload, model)


def choose_for_others(bench: Workbench, choices: Choices) -> Choices:
    """The recipe of other models in a comparison: the original's; where it was trained elsewhere, as if it were not."""
    situation = bench.situation
    if not situation.already_trained or situation.running_text or bench.task.kind.encodes:
        return choices
    return choose_recipe(bench.config.recovery, replace(situation, already_trained=False))
