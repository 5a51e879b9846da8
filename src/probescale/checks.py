"""Reading a configuration and finding everything wrong with it, at once and before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from probescale.config import ModelConfig, RunConfig, SelectionConfig, TaskConfig, parse, read_yaml, set_value
from probescale.errors import Problems, UserError, lookup
from probescale.selection.budget import parse_budget
from probescale.selection.strategies import STRATEGIES
from probescale.sources import is_local, parse_wheel_path
from probescale.tasks.builtin import fill_in
from probescale.tasks.metrics import METRICS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from probescale.models.families import Family

T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)


def load_config(path: Path | str, assignments: Sequence[str] = ()) -> RunConfig:
    """The configuration of a YAML file, or Problems with all that is wrong in it.

    Local files and model folders are opened and checked. What a hub or a package index holds is only fetched by a run.
    """
    raw = read_yaml(Path(path))
    for assignment in assignments:
        set_value(raw, assignment)
    return check(raw)


def check(raw: dict[str, Any]) -> RunConfig:
    problems: list[UserError] = []

    def attempt(step: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:  # noqa: ANN401 - passed through
        try:
            return step(*args, **kwargs)
        except Problems as several:
            problems.extend(several.problems)
        except UserError as one:
            problems.append(one)
        return None

    raw = attempt(fill_in, raw) or {key: value for key, value in raw.items() if key != "task"}
    config = attempt(parse, raw)
    # A section with an unknown key is still checked further: a user wants to hear of every fault in one go.
    if selection := _section(SelectionConfig, raw.get("selection")):
        attempt(lookup, STRATEGIES, selection.strategy, field="selection.strategy")
        attempt(parse_budget, selection.budget, selection.k)
    for number, name in enumerate(raw["compare"] if isinstance(raw.get("compare"), list) else []):
        attempt(lookup, STRATEGIES, str(name), field=f"compare.{number}")
    task, model = _section(TaskConfig, raw.get("task")), _section(ModelConfig, raw.get("model"))
    classes = None
    if task:
        attempt(lookup, METRICS, task.metric, field="task.metric")
        classes = attempt(_check_data, task)
    if model:
        attempt(_check_model, model)
    if not problems and config and is_local(config.model.source):
        attempt(check_budget, config, classes or 2)
    if problems or config is None:
        raise Problems({str(problem): problem for problem in problems}.values())
    return config


def _section(section: type[S], raw: object) -> S | None:
    try:
        return section.model_validate(raw, extra="ignore")
    except ValidationError:
        return None  # parse has reported it


def _check_data(task: TaskConfig) -> int | None:
    """Number of classes, where all data is local and can be read now."""
    from probescale.tasks.task import load_task

    sources = {"task.train": task.train, "task.dev": task.dev}
    sources |= {f"task.probes.{n}.data": probe.data for n, probe in enumerate(task.probes)}
    given = {field: data.source for field, data in sources.items() if data is not None}
    for field, source in given.items():
        if source.startswith("pypi:"):
            parse_wheel_path(source, field=f"{field}.source")
    if all(is_local(source) for source in given.values()) and task.metric in METRICS:
        return len(load_task(task, seed=0).train.names)
    return None


def _check_model(model: ModelConfig) -> None:
    if model.source.startswith("pypi:"):
        parse_wheel_path(model.source, field="model.source")
    elif is_local(model.source):
        check_architecture(model)


def check_architecture(model: ModelConfig) -> tuple[PreTrainedConfig, Family]:
    """The model's config and family, if both are known and the inputs fit."""
    from probescale.models.families import family_of
    from probescale.models.loading import read_config

    config = read_config(model.source, model.revision)
    family = family_of(config)
    longest = family.longest_input(config)
    if longest is not None and model.max_length > longest:
        raise UserError(
            f"{model.max_length} tokens are more than the model can take",
            field="model.max_length",
            hint=f"use at most {longest}",
        )
    return config, family


def check_budget(config: RunConfig, classes: int) -> None:
    """Every strategy must find a subnetwork within the budget; known from the model's config alone."""
    from probescale.models.counting import count_from_config
    from probescale.selection.select import select

    model, family = check_architecture(config.model)
    parameters = count_from_config(model, family, classes)
    budget = parse_budget(config.selection.budget, config.selection.k)
    for strategy in (config.selection.strategy, *config.compare):
        select([0.0] * family.layers_in(model), budget, parameters, strategy)
