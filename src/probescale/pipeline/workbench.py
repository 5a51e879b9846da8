"""What a run prepares once and hands on: task, model, shrinker, budget, structure, costs, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from probescale.config import OtherModel, RunConfig
from probescale.errors import UserError
from probescale.models.budget_costs import Workload, measure_costs
from probescale.models.cost import Cost
from probescale.models.facts import check_length
from probescale.models.loading import LoadedModel, load_classifier, load_encoder, read_trained_labels
from probescale.models.shrink.options import find_smallest, list_shrinks
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.shrinker import Shrinker
from probescale.models.subsets import Subset
from probescale.pipeline.lengths import describe_cut
from probescale.pipeline.provenance import provenance
from probescale.pipeline.teachers import check_teacher, load_token_teacher
from probescale.pipeline.validate import check_budget, check_other_model, refuse_encoder
from probescale.probing.probe import check_probes
from probescale.recovery.automatic import Situation, choose_recipe
from probescale.recovery.embedder import Embedder
from probescale.recovery.inputs import build_inputs
from probescale.recovery.recipe import Choices
from probescale.selection.budget import Budget, Unit, parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.ladder import parse_ladder
from probescale.selection.result import Selection
from probescale.selection.select import largest_k, select, select_subset
from probescale.selection.strategies import STRATEGIES, Reads, Strategy
from probescale.selection.structure import Structure
from probescale.tasks.balance import find_dominant
from probescale.tasks.documents import Documents
from probescale.tasks.kinds import find_kind
from probescale.tasks.label_matching import match_labels
from probescale.tasks.notes import describe_data
from probescale.tasks.task import Task, count_with_tuning, load_task
from probescale.tasks.unlabelled import joined, load_unlabelled
from probescale.utils.files import read_as, write_json
from probescale.utils.progress import console

USUAL_TIMES_SMALLER = 5.0
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
        some = texts.take(np.unique(np.linspace(0, len(texts) - 1, COUNTED_TEXTS).astype(int)).tolist())
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
        total = self.shrinker.original.total
        limits = [limit.most(total) for limit in self.budget.limits if limit.unit == "parameters"]
        return total / max(min(limits), 1) if limits else USUAL_TIMES_SMALLER

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
        """The most layers that any of the strategies can keep, as far as parameters allow."""
        limits = tuple(limit for limit in self.budget.limits if limit.unit == "parameters")
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

    def prepare_again(self, rows: int | None, dev: int | None, tokens: int | None) -> Workbench:
        """The same with so many labelled rows, rows of dev and tokens per text; each None: as before.

        The sizes of a ladder stay those that were planned: with fewer rows, others might fit.
        """
        most = rows if rows is None or self.task.tuning is None else count_with_tuning(rows)
        fewer = {name: value for name, value in (("max_train", most), ("max_dev", dev)) if value is not None}
        bench = self.with_length(tokens) if tokens else self
        if self.config.selection.ladder == "auto":
            bench = bench.with_selection(ladder=tuple(self.rungs))
        task = bench.config.task.model_copy(update=fewer)
        again = prepare(bench.config.model_copy(update={"task": task}), quiet=True)
        return replace(again, costs=self.costs)

    def with_recipe(self, recipe: Choices) -> Workbench:
        """The same with a recipe that was chosen for the trainings."""
        return replace(self, recipe=recipe)

    def for_other(self, other: OtherModel) -> Workbench:
        """The same task for another model, to be trained with the recipe of the original on labels alone."""
        model = self.config.model.model_copy(update={"source": other.model, "revision": other.revision})
        recovery = self.config.recovery.model_copy(update={"distil": False})
        config = self.config.model_copy(update={"model": model, "recovery": recovery, "compare": ()})
        task, loaded = _load_model(config, replace(self.task, unlabelled=None), field="compare")
        longest = loaded.family.longest_input(loaded.model.config)
        check_length(model.max_length, longest, field="model.max_length")
        recipe = self.chosen_recipe.model_copy(update={"augment": 0, "texts": None})
        if loaded.head_is_trained:
            recipe = recipe.model_copy(update={"original_epochs": 0})
        return replace(self, config=config, task=task, loaded=loaded, recipe=recipe)

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


def prepare(config: RunConfig, validation: float | None = None, *, quiet: bool = False) -> Workbench:
    """Load task and model; everything that can be refused is refused now: bad data, an impossible budget.

    `validation`: the share of train that is held out, to decide on. `quiet`: what there is to say was said before.
    """
    find_kind(config.task.kind).check_run(config)
    task = load_task(config.task, config.seed)
    for note in () if quiet else describe_data(task):
        console.print(f"note: {note}", soft_wrap=True)
    check_probes(task, config)
    check_budget(config, len(task.train.names))
    for number, other in enumerate(config.compare):
        if isinstance(other, OtherModel):
            check_other_model(other, task.kind.head, number)
    if config.recovery.distil and config.recovery.teacher:
        check_teacher(config.recovery, task)
    task, loaded = _load_model(config, task)
    if task.kind.own_head and config.recovery.distil and config.recovery.teacher:
        load_token_teacher(config.recovery.teacher, loaded)
    if task.kind.encodes:
        task = with_original(task, loaded, config)
    _check_poolings(config, loaded)
    cut = describe_cut(loaded, task.train, config.model.max_length)
    if cut and not quiet:
        console.print(f"note: {cut}", soft_wrap=True)
    record = provenance(loaded, task, config.seed)
    task = task.with_validation(validation, config.seed) if validation else task
    return Workbench(config, task, loaded, _make_shrinker(loaded, task, config), record)


def _load_model(config: RunConfig, task: Task, field: str = "model.source") -> tuple[Task, LoadedModel]:
    """The model, with its own head where it was fine-tuned for these labels; and the task, in that order of labels."""
    model, kind = config.model, task.kind
    if kind.encodes:
        return task, load_encoder(model.source, model.revision, allow_pickle=model.allow_pickle, field=field)
    if kind.unit == "token":
        refuse_encoder(model.source, model.revision, field=field)
    names, called = () if kind.own_head else None, "the model" if field == "model.source" else model.source
    if not kind.own_head and not config.recovery.original.retrain:
        labels = read_trained_labels(model.source, model.revision, kind.head, kind.problem_type, field=field)
        names = labels and (match_labels(labels, task.train.names) if kind.named else ())
        if labels and names is None:
            console.print(
                f"note: {called} was fine-tuned for other labels ({', '.join(labels[:5])}); it gets a new head for "
                f"{', '.join(task.train.names[:5])}"
            )
    task = task.with_names(names) if names else task
    loaded = load_classifier(
        model.source,
        model.revision,
        task.train.names,
        config.seed,
        head=kind.head,
        problem_type=kind.problem_type,
        keep_head=names is not None,
        allow_pickle=model.allow_pickle,
        field=field,
    )
    return task, loaded


def with_original(task: Task, loaded: LoadedModel, config: RunConfig) -> Task:
    """The same task with what the original, as it is, says of its texts."""
    if not config.recovery.distil or config.recovery.teacher:
        wrong = "teacher" if config.recovery.teacher else "distil"
        raise UserError(
            "embeddings are learned from the original alone", field=f"recovery.{wrong}", hint="leave it out"
        )
    return task.with_embeddings(Embedder(loaded, config.model.max_length))


def _check_poolings(config: RunConfig, loaded: LoadedModel) -> None:
    for number, probe in enumerate(config.task.probes):
        if probe.pooling == "cls" and loaded.tokenizer.cls_token_id is None:
            raise UserError(
                "this model's inputs do not begin with a token for the whole text",
                field=f"task.probes.{number}.pooling",
                hint="use mean, or auto",
            )


def _make_shrinker(loaded: LoadedModel, task: Task, config: RunConfig) -> Shrinker:
    """A Shrinker that counts the tokens of every text except those of dev and of what is held out."""
    texts = joined(task.train, task.unlabelled)
    if config.shrink.corpus is not None:
        unseen = joined(joined(task.dev, task.validation), task.tuning)
        corpus = load_unlabelled(config.shrink.corpus, texts, unseen, config.seed, field="shrink.corpus")
        texts = joined(texts, corpus)
    return Shrinker(loaded, texts, max_length=config.model.max_length)
