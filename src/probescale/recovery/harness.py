"""Scores of a generative model on tasks of lm-evaluation-harness: those that it brings, or a user's own YAML files."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.utils.files import Record
from probescale.utils.progress import spinner

FIELD = "task.harness"
INSTALL = 'pip install "probescale[harness]"'
BATCH, RESAMPLES = 8, 1000
YAML_SUFFIXES = (".yaml", ".yml")


class HarnessScore(Record):
    """What a model reaches on one task, by one metric."""

    task: str
    metric: str
    value: float
    error: float | None  # standard error, where the metric has one
    examples: int


def check_harness(tasks: Sequence[str]) -> None:
    """Refuse tasks that do not exist, before any work."""
    if tasks and importlib.util.find_spec("lm_eval") is None:
        raise UserError("lm-evaluation-harness is not installed", field=FIELD, hint=INSTALL)
    for number, task in enumerate(tasks):
        if Path(task).suffix in YAML_SUFFIXES:
            _read_name(Path(task), f"{FIELD}.{number}")
    if named := [task for task in tasks if Path(task).suffix not in YAML_SUFFIXES]:
        known = _build_manager([]).match_tasks(named)
        for number, task in enumerate(tasks):
            if task in named and task not in known:
                raise UserError(
                    f'lm-evaluation-harness has no task "{task}"',
                    field=f"{FIELD}.{number}",
                    hint="see `lm-eval ls tasks`, or give the path of a YAML file",
                )


def run_harness(loaded: LoadedModel, tasks: Sequence[str]) -> tuple[HarnessScore, ...]:
    """The score of a model on every task and metric."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    files = [Path(task) for task in tasks if Path(task).suffix in YAML_SUFFIXES]
    names = [_read_name(Path(task), FIELD) if Path(task) in files else task for task in tasks]
    manager = _build_manager(files, all(Path(task) in files for task in tasks))
    with spinner(f"lm-evaluation-harness: {', '.join(names)}"), _quiet():
        wrapper: Any = HFLM  # its signature is hidden by a decorator
        model = wrapper(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=BATCH)
        found: Any = simple_evaluate(
            model, tasks=[*names], task_manager=manager, log_samples=False, bootstrap_iters=RESAMPLES
        )
    return tuple(_list_scores(found))


def _build_manager(files: Sequence[Path], own_alone: bool = False) -> Any:  # noqa: ANN401 - lm_eval's TaskManager
    """The tasks in the folders of these files, and those of the harness: to list them all takes a while."""
    from lm_eval.tasks import TaskManager

    folders: list[str | Path] = [*dict.fromkeys(file.resolve().parent for file in files)]
    return TaskManager(include_path=folders or None, include_defaults=not own_alone)


def _list_scores(found: dict[str, Any]) -> Iterator[HarnessScore]:
    for task, scores in found["results"].items():
        for key, value in scores.items():
            metric, _, how = key.partition(",")  # such as "acc,none": the metric, and how answers were filtered
            if not how or metric.endswith("_stderr"):
                continue
            error = scores.get(f"{metric}_stderr,{how}")
            yield HarnessScore(
                task=task,
                metric=metric if how == "none" else f"{metric} ({how})",
                value=float(value),
                error=float(error) if isinstance(error, (int, float)) else None,
                examples=found["n-samples"][task]["effective"] if task in found["n-samples"] else 0,
            )


def _read_name(path: Path, field: str) -> str:
    """The name that a task's own YAML file gives it."""
    if not path.is_file():
        raise UserError(f"{path} does not exist", field=field, hint="give the path of a task's YAML file")
    found = re.search(r"^task:\s*[\"']?([\w-]+)", path.read_text(encoding="utf-8"), re.MULTILINE)  # it may have tags
    if found is None:
        raise UserError(
            f"{path} names no task", field=field, hint="a task of lm-evaluation-harness has a line such as task: mine"
        )
    return found[1]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the harness's own progress and messages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
