"""The cells of a study: every combination of what it varies, each with its own run configuration."""

from __future__ import annotations

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from probescale.config import RunConfig
from probescale.errors import Problems, UserError, lookup
from probescale.pipeline.validate import check, parse
from probescale.selection.strategies import STRATEGIES
from probescale.study.settings import StudyConfig
from probescale.utils.sections import short_name
from probescale.utils.yaml_files import explain_faults, read_yaml, set_value

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One run of a study, and what distinguishes it from the others."""

    model: str
    task: str
    strategy: str
    budget: str
    seed: int
    config: RunConfig

    @property
    def preparation(self) -> str:
        """Name of the preparation that it shares with the cells of the same model, task and seed."""
        return _slug(self.model, self.task, f"seed{self.seed}")

    @property
    def name(self) -> str:
        """Unique in the study; also the name of its folder."""
        return _slug(self.model, self.task, self.strategy, self.budget, f"seed{self.seed}")


@dataclass(frozen=True)
class Study:
    """All cells, and the settings they come from."""

    settings: StudyConfig
    cells: tuple[Cell, ...]
    raw: dict[str, Any]  # as written by the user, with --set applied

    @property
    def preparations(self) -> dict[str, list[Cell]]:
        """The shared preparations, each with the cells that need it."""
        cells: dict[str, list[Cell]] = {}
        for cell in self.cells:
            cells.setdefault(cell.preparation, []).append(cell)
        return cells


def load_study(path: Path, assignments: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file; raises Problems with everything that is wrong in it."""
    raw = read_yaml(path)
    for assignment in assignments:
        set_value(raw, assignment)
    return build_study(raw)


def build_study(raw: dict[str, Any], *, checked: bool = False) -> Study:
    """Check the settings and list the cells; raises Problems with everything that is wrong.

    `checked`: the settings were checked before, so that no data is read; every process of a study starts like this.
    """
    if "study" not in raw:
        raise UserError(
            "required, but missing: what the study varies", field="study", hint="configs/study-demo.yaml has an example"
        )
    try:
        settings = StudyConfig.model_validate(raw["study"])
    except ValidationError as error:
        raise Problems(_under_study(explain_faults(error, StudyConfig))) from error
    problems: list[UserError] = []
    for number, name in enumerate(settings.strategies):
        try:
            lookup(STRATEGIES, name, field=f"study.strategies.{number}")
        except UserError as unknown:
            problems.append(unknown)
    if problems:
        raise Problems(problems)
    return Study(settings, tuple(_build_cells(raw, settings, parse if checked else check)), raw)


def _under_study(problems: list[UserError]) -> list[UserError]:
    """The same problems, with fields named from the top of the file."""
    return [UserError(p.message, field=f"study.{p.field}".rstrip("."), hint=p.hint) for p in problems]


def _build_cells(raw: dict[str, Any], settings: StudyConfig, read: Callable[[dict[str, Any]], RunConfig]) -> list[Cell]:
    """Every combination, read as a run is. A problem that many cells share is reported once."""
    cells, problems = [], dict[str, UserError]()
    models = settings.models or (None,)
    tasks = settings.tasks or (None,)
    budgets = settings.budgets or (None,)
    names = _model_names([model or _model_source(raw) for model in models])
    axes = (models, tasks, budgets, settings.strategies, settings.seeds)
    if (total := math.prod(map(len, axes))) > MAX_CELLS:
        raise UserError(f"{total:,} cells are too many", field="study", hint=f"a study has at most {MAX_CELLS:,}")
    for (number, model), task, budget, strategy, seed in product(
        enumerate(models), tasks, budgets, settings.strategies, settings.seeds
    ):
        try:
            config = read(_cell_settings(raw, model, task, budget, strategy, seed))
        except Problems as error:
            problems |= {str(problem): problem for problem in error.problems}
            continue
        selection = config.selection
        if selection.ladder:
            raise UserError(
                "the cells of a study have one size each", field="selection.ladder", hint="list sizes in study.budgets"
            )
        budget_text = f"k={selection.k}" if selection.budget in (None, ()) else _format_budget(selection.budget)
        cells.append(Cell(names[number], config.task.name, strategy, budget_text, seed, config))
    if problems:
        raise Problems(problems.values())
    counts = Counter(cell.name for cell in cells)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise UserError(
            f'two cells would both be called "{twice}"',
            field="study",
            hint="give tasks different names (task.name), and list nothing twice",
        )
    return cells


def _cell_settings(
    raw: dict[str, Any], model: str | None, task: object, budget: str | float | None, strategy: str, seed: int
) -> dict[str, Any]:
    """The settings of one cell, as those of a run."""
    settings = copy.deepcopy({key: value for key, value in raw.items() if key != "study"})
    if model is not None and isinstance(section := settings.get("model") or {}, dict):
        settings["model"] = section | {"source": model}
    if task is not None:
        settings["task"] = copy.deepcopy(task)
    if isinstance(section := settings.get("selection") or {}, dict):  # else the check of the cell refuses it
        settings["selection"] = section | _budget_settings(budget) | {"strategy": strategy}
    compared = settings.get("compare") or []
    others = [entry for entry in compared if isinstance(entry, dict)] if isinstance(compared, list) else compared
    return settings | {"compare": others, "seed": seed}


def _budget_settings(budget: str | float | None) -> dict[str, Any]:
    """The part of `selection` that a budget of the study sets.

    >>> _budget_settings("k=3"), _budget_settings("5x"), _budget_settings(None)
    ({'k': 3, 'budget': None}, {'k': None, 'budget': '5x'}, {})
    """
    layers = re.fullmatch(r"\s*k\s*=\s*(\d{1,9})\s*", str(budget))
    if budget is None:
        return {}
    return {"k": int(layers[1]), "budget": None} if layers else {"k": None, "budget": budget}


def _model_source(raw: dict[str, Any]) -> str:
    """The source of the model under `model`, as far as it can be read."""
    model = raw.get("model")
    return str(model.get("source", "model")) if isinstance(model, dict) else "model"


def _model_names(sources: list[str]) -> list[str]:
    """A short and unique name for every model.

    >>> _model_names(["pypi:some-model==0.1/some/folder#sha256=0", "models/bert", "other/bert"])
    ['some-model', 'bert', 'bert-2']
    """
    names: list[str] = []
    for source in sources:
        name = short_name(source)  # it is used in file names
        same = sum(re.fullmatch(re.escape(name) + r"(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{same + 1}" if same else name)
    return names


def _format_budget(budget: object) -> str:
    return " and ".join(map(str, budget)) if isinstance(budget, tuple) else str(budget)


def _slug(*words: str) -> str:
    """Words joined to a file name.

    >>> _slug("bert", "my task", "top_k", "5%", "seed0")
    'bert_my-task_top_k_5pct_seed0'
    """
    return "_".join(re.sub(r"[^\w.=-]+", "-", word.replace("%", "pct")) for word in words)
