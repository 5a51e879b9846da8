"""Reading a configuration and finding everything wrong with it, at once and before any work starts."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from probescale.config import (
    REFERENCES,
    WORD_POOLINGS,
    DataConfig,
    Head,
    ModelConfig,
    OtherModel,
    ProbeConfig,
    ProbingConfig,
    RecoveryConfig,
    RunConfig,
    SelectionConfig,
    TaskConfig,
)
from probescale.errors import Problems, UserError, lookup
from probescale.probing.probes import PROBES
from probescale.recovery.harness import check_harness
from probescale.recovery.result import ORIGINAL
from probescale.selection.budget import Budget, parse_budget
from probescale.selection.ladder import parse_ladder
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.builtin import fill_in
from probescale.tasks.kinds import KINDS, Kind, find_kind
from probescale.tasks.kinds.losses import CrossEntropy
from probescale.tasks.structural import PROPERTIES
from probescale.tasks.swaps import load_swaps
from probescale.utils.progress import parse_time
from probescale.utils.sources import is_local
from probescale.utils.wheels import parse_wheel_path
from probescale.utils.yaml_files import parse_section, read_yaml, set_value

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from probescale.models.family import Family

T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)


def load_config(path: Path | str, assignments: Sequence[str] = ()) -> RunConfig:
    """The configuration of a YAML file, or Problems with all that is wrong in it.

    Local files and model folders are opened and checked. What a hub or a package index holds is only fetched by a run.
    """
    return check(read_yaml(Path(path)), assignments)


def parse(raw: dict[str, Any]) -> RunConfig:
    """The configuration without opening any of its files: for settings that were checked before."""
    return parse_section(_complete(raw, ()), RunConfig)


def check(raw: dict[str, Any], assignments: Sequence[str] = ()) -> RunConfig:
    """The checked configuration; raises all its problems at once. `assignments`: changes like dotted.key=value."""
    problems: list[UserError] = []

    def attempt(step: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:  # noqa: ANN401 - passed through
        try:
            return step(*args, **kwargs)
        except Problems as several:
            problems.extend(several.problems)
        except UserError as one:
            problems.append(one)
        return None

    completed = attempt(_complete, raw, assignments)
    config = attempt(parse_section, completed, RunConfig) if completed is not None else None
    raw = completed or {}
    # A section with an unknown key is still checked further: a user wants to hear of every fault in one go.
    if selection := _section(SelectionConfig, raw.get("selection")):
        attempt(lookup, STRATEGIES, selection.strategy, field="selection.strategy")
        if selection.ladder:
            attempt(parse_ladder, selection.ladder)
        else:
            attempt(parse_budget, selection.budget, selection.k)
    if probing := _section(ProbingConfig, raw.get("probing")):
        attempt(lookup, PROBES, probing.probe, field="probing.probe")
    recovery = _section(RecoveryConfig, raw.get("recovery"))
    twice = recovery is not None and recovery.save_memory
    for number, name in enumerate(raw["compare"] if isinstance(raw.get("compare"), list) else []):
        if isinstance(name, dict):
            entry, kind = _section(OtherModel, name), _section(TaskConfig, raw.get("task"))
            if entry and kind and kind.kind in KINDS:
                attempt(check_other_model, entry, find_kind(kind.kind).head, number, twice=twice)
        else:
            attempt(_check_compared, str(name), number)
    if recovery:
        for number, tracker in enumerate(recovery.tracking):
            attempt(_check_tracker, tracker, number)
        attempt(_check_memory, recovery)
    if isinstance(raw.get("time"), str):
        attempt(parse_time, raw["time"])
    task, model = _section(TaskConfig, raw.get("task")), _section(ModelConfig, raw.get("model"))
    if task:
        kind = attempt(find_kind, task.kind)
        if kind:
            attempt(kind.check, task)
        if kind and recovery:
            attempt(_check_class_weights, recovery, kind)
        attempt(check_harness, task.harness)
        for number, probe in enumerate(task.probes):
            if probe.property is not None:
                attempt(lookup, PROPERTIES, probe.property, field=f"task.probes.{number}.property")
        for step in _data_steps(task, kind):
            attempt(step)
    if model:
        attempt(_check_model, model)
    if not problems and config:
        attempt(_check_together, config)
    if problems or config is None:
        raise Problems({str(problem): problem for problem in problems}.values())
    return config


def _check_tracker(name: str, number: int) -> None:
    if importlib.util.find_spec(name) is None:
        raise UserError(
            f"{name} is not installed", field=f"recovery.tracking.{number}", hint=f"pip install {name}, or leave it out"
        )


def _check_memory(recovery: RecoveryConfig) -> None:
    """What makes training fit into memory is installed, and agrees with the rest of the recipe."""
    if recovery.adapters == "lora" and importlib.util.find_spec("peft") is None:
        raise UserError(
            "peft is not installed",
            field="recovery.adapters",
            hint='pip install "probescale[lora]", or leave adapters out',
        )
    if recovery.save_memory and (recovery.states or recovery.healing):
        raise UserError(
            "the states of the layers are compared with the teacher's, and cannot be computed twice",
            field="recovery.save_memory",
            hint="leave it out, or set recovery.states and recovery.healing to 0",
        )


def _check_class_weights(recovery: RecoveryConfig, kind: Kind) -> None:
    """Weights of classes would change nothing where a row does not have exactly one of them."""
    one_each = isinstance(kind.loss, CrossEntropy) and kind.unit != "token"
    if recovery.class_weights not in ("auto", "none") and not one_each:
        raise UserError(
            f"{recovery.class_weights} is for tasks where every row has one class, and this one is of kind {kind.name}",
            field="recovery.class_weights",
            hint="leave it out",
        )


def _complete(raw: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Put the built-in task in first, so that an assignment can change a part of it."""
    raw = copy.deepcopy(raw)
    which_task = [one for one in assignments if one.partition("=")[0] in ("task", "task.builtin")]
    for assignment in which_task:
        set_value(raw, assignment)
    raw = fill_in(raw)
    for assignment in assignments:
        if assignment not in which_task:
            set_value(raw, assignment)
    return _with_kind_defaults(raw)


def _with_kind_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """The same with the settings for which the kind of task has a default of its own, where nothing was given."""
    task = raw.get("task")
    kind = KINDS.get(str(task.get("kind"))) if isinstance(task, dict) else None
    for key, value in kind.defaults.items() if kind else ():
        *path, last = key.split(".")
        section: Any = raw
        for name in path:
            section = section.setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.setdefault(last, value)
    return raw


def _section(section: type[S], raw: object) -> S | None:
    try:
        return section.model_validate(raw, extra="ignore")
    except ValidationError:
        return None  # parse_section has reported it


def _data_steps(task: TaskConfig, kind: Kind | None) -> Iterator[Callable[[], object]]:
    """One check for every data section: local files are read, wheel sources checked for their form."""
    sections: list[tuple[str, DataConfig | None, Callable[..., object]]] = []
    if kind:
        sections = [("task.train", task.train, kind.load)]
        sections += [
            (f"task.{name}", getattr(task, name), kind.check_rows) for name in ("dev", "calibration", "second")
        ]
    sections += [(f"task.probes.{n}.data", probe.data, _reader(probe)) for n, probe in enumerate(task.probes)]
    if kind and kind.bias_pairs and task.bias and is_local(task.bias.source):
        yield partial(load_swaps, task.bias, paired=task.train.pair is not None, field="task.bias")
    for field, data, load in sections:
        if data is None:
            continue
        if data.source.startswith("pypi:"):
            yield partial(parse_wheel_path, data.source, field=f"{field}.source")
        elif is_local(data.source):
            yield partial(load, data, field=field)


def _reader(probe: ProbeConfig) -> Callable[..., object]:
    """What reads a probe's own data."""
    from probescale.tasks.labelled import load_examples, load_tagged
    from probescale.tasks.structural import load_property

    if probe.property is not None:
        if probe.property not in PROPERTIES:
            return lambda data, field: None  # reported by its name
        name = probe.property
        return lambda data, field: load_property(name, data, (), 0, field=field.removesuffix(".data"))
    return load_tagged if probe.pooling in WORD_POOLINGS else partial(load_examples, target=probe.target)


def _check_together(config: RunConfig) -> None:
    """What shows only when all parts are read: labels that differ, too little data, an impossible budget."""
    task = config.task
    kind = find_kind(task.kind)
    kind.check_run(config)
    if config.references and kind.unit != "token":
        raise UserError(
            f"{config.references[0]} is for generative models, and this task is of kind {kind.name}",
            field="compare",
            hint="leave it out",
        )
    if config.selection.ladder and config.compared_strategies:
        raise UserError(
            "a ladder compares sizes, not strategies",
            field="compare",
            hint="leave strategies out; a study compares strategies at several sizes",
        )
    data = [task.train, task.dev, task.calibration, task.second, task.bias, *(probe.data for probe in task.probes)]
    classes = 2
    if all(is_local(part.source) for part in data if part is not None):
        from probescale.probing.probe import check_probes
        from probescale.tasks.task import load_task

        loaded = load_task(task, config.seed)
        check_probes(loaded, config)
        classes = len(loaded.train.names)
    if is_local(config.model.source):
        check_budget(config, classes)


def _check_compared(name: str, number: int) -> None:
    if name in REFERENCES:
        return
    if lookup(STRATEGIES, name, field=f"compare.{number}").decides_allocation:
        raise UserError(
            f"{name} also decides how the budget is shared out, which all models of a comparison have in common",
            field=f"compare.{number}",
            hint=f"make it the run's own: selection.strategy: {name}",
        )


def check_other_model(other: OtherModel, head: Head, number: int, *, twice: bool = False) -> None:
    """Refuse a compared model that cannot be read, or cannot have the task's head, before any work.

    `twice`: its states are to be computed twice, to save memory.
    """
    field = f"compare.{number}"
    if other.called in {*STRATEGIES, *REFERENCES.values(), ORIGINAL}:
        raise UserError(
            f'"{other.called}" is the name of another row', field=f"{field}.name", hint="give it another one with name:"
        )
    if other.model.startswith("pypi:"):
        parse_wheel_path(other.model, field=f"{field}.model")
    elif is_local(other.model):
        from probescale.models.config_reading import read_config
        from probescale.models.families import find_family
        from probescale.models.heads import find_stock_class
        from probescale.models.loading import check_local_model

        config = read_config(other.model, other.revision, field=f"{field}.model")
        stock = find_stock_class(find_family(config, field=f"{field}.model"), config, head, field=f"{field}.model")
        if twice:
            check_computed_twice(stock)
        check_local_model(other.model, field=f"{field}.model")


def refuse_encoder(source: str, revision: str | None, *, field: str) -> None:
    """Refuse a model that does not write texts."""
    from probescale.models.config_reading import read_config
    from probescale.models.families import find_family

    config = read_config(source, revision, field=field)
    if not find_family(config, field=field).is_decoder:
        raise UserError(
            f"{source} ({config.model_type}) does not write texts token by token",
            field=field,
            hint="give a decoder such as GPT-2 or Llama; to make an encoder's embeddings small: task.kind embedding",
        )


def _check_model(model: ModelConfig) -> None:
    if model.source.startswith("pypi:"):
        parse_wheel_path(model.source, field="model.source")
    elif is_local(model.source):
        from probescale.models.loading import check_local_model

        check_architecture(model)
        check_local_model(model.source, allow_pickle=model.allow_pickle)


def check_architecture(model: ModelConfig) -> tuple[PreTrainedConfig, Family]:
    """The model's config and family, if both are known and the inputs fit."""
    from probescale.models.config_reading import read_config
    from probescale.models.facts import check_length
    from probescale.models.families import find_family

    config = read_config(model.source, model.revision)
    family = find_family(config)
    check_length(model.max_length, family.longest_input(config), field="model.max_length")
    return config, family


def check_budget(config: RunConfig, classes: int) -> None:
    """Every strategy must find a subnetwork within the budget; known from the model's config alone, but for time."""
    from dataclasses import replace

    from probescale.models.budget_costs import Workload, measure_costs
    from probescale.models.counting import count_from_config
    from probescale.models.heads import find_stock_class
    from probescale.selection.constraints import Constraints
    from probescale.selection.search import refuse_costly
    from probescale.selection.select import largest_k
    from probescale.selection.structure import Structure

    model, family = check_architecture(config.model)
    if config.recovery.dimensions:
        _check_dimensions(config, model.hidden_size)
    head = find_kind(config.task.kind).head
    if config.recovery.save_memory:
        check_computed_twice(find_stock_class(family, model, head, field="model.source"))
    parameters = count_from_config(model, family, classes, head)
    if config.shrink.asked:  # how small the embeddings get shows when the texts are read
        layers = parameters.layers if config.shrink.units == "all" else (1,) * len(parameters.layers)
        parameters = parameters.model_copy(update={"embeddings": 0, "layers": layers, "original": parameters})
    chosen = config.selection
    workload = Workload(model, family, head, classes, chosen.length)
    for budget in _list_budgets(chosen):
        timeless = replace(budget, limits=tuple(limit for limit in budget.limits if limit.unit != "milliseconds"))
        costs = measure_costs(timeless.units, workload)
        if config.shrink.units != "all":
            costs = {unit: cost.narrowed(1) for unit, cost in costs.items()}
        constraints = Constraints(timeless, parameters, costs, Structure.from_config(chosen))
        for strategy in (chosen.strategy, *config.compared_strategies):
            most = largest_k(family.count_layers(model), constraints, strategy)
            refuse_costly(strategy, len(parameters.layers), most, chosen.passes, constraints.full_structure)


def check_computed_twice(stock: type[PreTrainedModel]) -> None:
    """Some stock classes have no gradient checkpointing."""
    if not stock.supports_gradient_checkpointing:
        raise UserError(
            f"transformers cannot compute the states of {stock.__name__} twice",
            field="recovery.save_memory",
            hint="leave it out; recovery.adapters: lora also takes less memory",
        )


def _check_dimensions(config: RunConfig, hidden_size: int) -> None:
    """Smaller vectors have to be smaller than those of the original."""
    from probescale.models.pooling import read_pooling
    from probescale.utils.sources import fetch_model_folder

    folder = fetch_model_folder(config.model.source, config.model.revision, field="model.source")
    width = read_pooling(folder, hidden_size).width
    if wrong := [number for number in config.recovery.dimensions if number >= width]:
        raise UserError(
            f"{wrong[0]} is not less than the {width} numbers of the original's vectors",
            field="recovery.dimensions",
            hint=f"give numbers below {width}, such as {width // 2}",
        )


def _list_budgets(selection: SelectionConfig) -> list[Budget]:
    """The budget, or those of a ladder's rungs; of the usual rungs only the largest one has to be possible."""
    if not selection.ladder:
        return [parse_budget(selection.budget, selection.k)]
    rungs = [parse_budget(rung) for rung in parse_ladder(selection.ladder)]
    return rungs[:1] if selection.ladder == "auto" else rungs
