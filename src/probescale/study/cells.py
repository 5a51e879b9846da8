"""The cells of a study: one configuration each, and what several of them share."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from probescale.config import RunConfig
from probescale.errors import Problems, UserError, lookup
from probescale.pipeline.validate import check
from probescale.selection.strategies import STRATEGIES
from probescale.study.settings import StudyConfig
from probescale.utils.yaml_files import explain_faults, read_yaml, set_value

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One run of a study, and the words that tell it from the others."""

    model: str
    task: str
    strategy: str
    budget: str
    seed: int
    config: RunConfig

    @property
    def preparation(self) -> str:
        """What it shares with the cells that differ in strategy and budget alone."""
        return _slug(self.model, self.task, f"seed{self.seed}")

    @property
    def name(self) -> str:
        return _slug(self.model, self.task, self.strategy, self.budget, f"seed{self.seed}")


@dataclass(frozen=True)
class Study:
    settings: StudyConfig
    cells: tuple[Cell, ...]
    raw: dict[str, Any]  # as the user wrote it, --set included

    @property
    def preparations(self) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(cell.preparation, []).append(cell)
        return found


def load_study(path: Path, assignments: Sequence[str] = ()) -> Study:
    """The study of a YAML file, or Problems with all that is wrong in it."""
    raw = read_yaml(path)
    for assignment in assignments:
        set_value(raw, assignment)
    return build_study(raw)


def build_study(raw: dict[str, Any]) -> Study:
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
    return Study(settings, tuple(_build_cells(raw, settings)), raw)


def _under_study(problems: list[UserError]) -> list[UserError]:
    return [UserError(one.message, field=f"study.{one.field}".rstrip("."), hint=one.hint) for one in problems]


def _build_cells(raw: dict[str, Any], settings: StudyConfig) -> list[Cell]:
    """Every combination, checked as a run is; a fault that many cells share is told once."""
    cells, problems = [], dict[str, UserError]()
    models = settings.models or (None,)
    tasks = settings.tasks or (None,)
    budgets = settings.budgets or (None,)
    shown = _model_names([model or _model_source(raw) for model in models])
    varied = (models, tasks, budgets, settings.strategies, settings.seeds)
    if (many := math.prod(map(len, varied))) > MAX_CELLS:
        raise UserError(f"{many:,} cells are too many", field="study", hint=f"a study has at most {MAX_CELLS:,}")
    for (number, model), task, budget, strategy, seed in product(
        enumerate(models), tasks, budgets, settings.strategies, settings.seeds
    ):
        try:
            config = check(_cell_settings(raw, model, task, budget, strategy, seed))
        except Problems as several:
            problems |= {str(one): one for one in several.problems}
            continue
        chosen = config.selection
        words = f"k={chosen.k}" if chosen.budget in (None, ()) else _format_budget(chosen.budget)
        cells.append(Cell(shown[number], config.task.name, strategy, words, seed, config))
    if problems:
        raise Problems(problems.values())
    names = [cell.name for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f'two cells would both be called "{twice}"',
            field="study",
            hint="give tasks different names (task.name), and list nothing twice",
        )
    return cells


def _cell_settings(
    raw: dict[str, Any], model: str | None, task: object, budget: str | float | None, strategy: str, seed: int
) -> dict[str, Any]:
    """The settings of one run."""
    one = copy.deepcopy({key: value for key, value in raw.items() if key != "study"})
    if model is not None and isinstance(section := one.get("model") or {}, dict):
        one["model"] = section | {"source": model}
    if task is not None:
        one["task"] = copy.deepcopy(task)
    if isinstance(section := one.get("selection") or {}, dict):  # else it is reported as it is
        one["selection"] = section | _budget_settings(budget) | {"strategy": strategy}
    return one | {"compare": [], "seed": seed}


def _budget_settings(budget: str | float | None) -> dict[str, Any]:
    """
    >>> _budget_settings("k=3"), _budget_settings("5x"), _budget_settings(None)
    ({'k': 3, 'budget': None}, {'k': None, 'budget': '5x'}, {})
    """
    layers = re.fullmatch(r"\s*k\s*=\s*(\d{1,9})\s*", str(budget))
    if budget is None:
        return {}
    return {"k": int(layers[1]), "budget": None} if layers else {"k": None, "budget": budget}


def _model_source(raw: dict[str, Any]) -> str:
    model = raw.get("model")
    return str(model.get("source", "model")) if isinstance(model, dict) else "model"


def _model_names(sources: list[str]) -> list[str]:
    """Short, and different from each other.

    >>> _model_names(["pypi:some-model==0.1/some/folder#sha256=0", "models/bert", "other/bert"])
    ['some-model', 'bert', 'bert-2']
    """
    found: list[str] = []
    for source in sources:
        wheel = re.match(r"pypi:([^=]+)==", source)
        name = _slug(wheel[1] if wheel else Path(source).name)  # it becomes the name of files
        same = sum(re.fullmatch(re.escape(name) + r"(-\d+)?", one) is not None for one in found)
        found.append(f"{name}-{same + 1}" if same else name)
    return found


def _format_budget(budget: object) -> str:
    return " and ".join(map(str, budget)) if isinstance(budget, tuple) else str(budget)


def _slug(*words: str) -> str:
    """
    >>> _slug("bert", "my task", "top_k", "5%", "seed0")
    'bert_my-task_top_k_5pct_seed0'
    """
    return "_".join(re.sub(r"[^\w.=-]+", "-", word.replace("%", "pct")) for word in words)
