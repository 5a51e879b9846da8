"""Reading a configuration and finding everything wrong with it, at once and before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from probescale.config import ModelConfig, RunConfig, SelectionConfig, TaskConfig, parse, read_yaml, set_value
from probescale.errors import Problems, UserError, lookup
from probescale.selection.budget import parse_budget
from probescale.selection.strategies import STRATEGIES
from probescale.sources import is_local, parse_wheel_path
from probescale.tasks.builtin import fill_in
from probescale.tasks.metrics import METRICS

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
    if task:
        attempt(lookup, METRICS, task.metric, field="task.metric")
        attempt(_check_data, task)
    if model:
        attempt(_check_model, model)
    if problems or config is None:
        raise Problems({str(problem): problem for problem in problems}.values())
    return config


def _section(section: type[S], raw: object) -> S | None:
    try:
        return section.model_validate(raw, extra="ignore")
    except ValidationError:
        return None  # parse has reported it


def _check_data(task: TaskConfig) -> None:
    from probescale.tasks.task import load_task

    sources = {"task.train": task.train, "task.dev": task.dev}
    sources |= {f"task.probes.{n}.data": probe.data for n, probe in enumerate(task.probes)}
    given = {field: data.source for field, data in sources.items() if data is not None}
    for field, source in given.items():
        if source.startswith("pypi:"):
            parse_wheel_path(source, field=f"{field}.source")
    if all(is_local(source) for source in given.values()) and task.metric in METRICS:
        load_task(task, seed=0)


def _check_model(model: ModelConfig) -> None:
    if model.source.startswith("pypi:"):
        parse_wheel_path(model.source, field="model.source")
    elif is_local(model.source):
        from probescale.models.families import family_of
        from probescale.models.loading import read_config

        family_of(read_config(model.source))
