"""Built-in tasks, one YAML file each: the file's name is the task's name."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from probescale.errors import lookup


def builtin_tasks() -> dict[str, dict[str, Any]]:
    """The raw task section of every built-in task, by name."""
    paths = sorted((path for path in files(__name__).iterdir() if path.name.endswith(".yaml")), key=lambda p: p.name)
    return {path.name.removesuffix(".yaml"): YAML(typ="safe").load(path.read_text("utf-8")) for path in paths}


def fill_in(raw: dict[str, Any]) -> dict[str, Any]:
    """The raw configuration with a built-in task's fields filled in where the user gave none.

    `task: sst2` takes the task as it is; `task: {builtin: sst2, max_train: 2000}` changes a part of it.
    """
    task = raw.get("task")
    if isinstance(task, str):
        task = {"builtin": task}
    if not isinstance(task, dict) or "builtin" not in task:
        return raw
    own = {key: value for key, value in task.items() if key != "builtin"}
    base = lookup(builtin_tasks(), str(task["builtin"]), field="task.builtin")
    return {**raw, "task": _merge(base, own)}


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The user's own values win. A data section with its own source inherits only the column names."""
    merged = dict(base)
    for key, value in own.items():
        if key in ("train", "dev") and isinstance(value, str):
            value = {"source": value}
        if isinstance(value, dict) and isinstance(base.get(key), dict) and key != "labels":
            inherited = {k: v for k, v in base[key].items() if k != "split" or "source" not in value}
            value = {**inherited, **value}
        merged[key] = value
    return merged
