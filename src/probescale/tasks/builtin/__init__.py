"""Built-in tasks, one YAML file each: the file's name is the task's name."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from probescale.errors import lookup


def builtin_tasks() -> dict[str, dict[str, Any]]:
    """Name -> the raw task section of a configuration."""
    found = sorted((file for file in files(__name__).iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    return {file.name.removesuffix(".yaml"): YAML(typ="safe").load(file.read_text("utf-8")) for file in found}


def fill_in(raw: dict[str, Any]) -> dict[str, Any]:
    """Put a built-in task's fields under what the user wrote.

    `task: sst2` takes it as it is; `task: {builtin: sst2, max_train: 2000}` changes some of it.
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
    """Own values win. A data section with a source of its own keeps nothing but the column names."""
    merged = dict(base)
    for key, value in own.items():
        if key in ("train", "dev") and isinstance(value, str):
            value = {"source": value}
        if isinstance(value, dict) and isinstance(base.get(key), dict) and key != "labels":
            inherited = {k: v for k, v in base[key].items() if k != "split" or "source" not in value}
            value = {**inherited, **value}
        merged[key] = value
    return merged
