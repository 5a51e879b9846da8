"""What tells one piece of work from another: an interrupted run is resumed only by the same one.

Paths and names do not count: weights and data are compared by their hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probescale.config import RunConfig
from probescale.utils.differences import list_differences

SHOWN = 4  # differences that a message names
LONGEST = 60  # characters of a value in a message


def describe_work(config: RunConfig, provenance: Mapping[str, Any], extra: Mapping[str, object]) -> dict[str, Any]:
    """Everything that results depend on (`work`), and how weights, data and task are called (`names`)."""
    settings = config.model_dump(mode="json")
    names = {"task.name": settings["task"].pop("name")}
    model, task = settings["model"], settings["task"]
    names |= {"model.source": model.pop("source"), "model.revision": model.pop("revision")}
    for part in ("train", "dev", "unlabelled"):
        if task.get(part):
            names[f"task.{part}.source"] = task[part].pop("source")
    for number, probe in enumerate(task["probes"]):
        if probe.get("data"):
            names[f"task.probes.{number}.data.source"] = probe["data"].pop("source")
    known = {key: provenance[key] for key in ("model_sha256", "tokenizer_sha256", "data_sha256", "versions")}
    return {"work": {**settings, **known, **extra}, "names": names}


def explain_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between unfinished work and this command, for a person; empty where it is the same work."""
    found = list_differences(before["work"], now["work"])
    named = [f"{name} ({_show(old)} there, {_show(new)} here)" for name, old, new in found[:SHOWN]]
    return "; ".join([*named, *([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])])


def list_renamed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A note for every name or path that has changed although what it stands for is the same."""
    found = list_differences(before["names"], now["names"])
    return [f"{name} is now {_show(new)} (was {_show(old)}), with the same content" for name, old, new in found]


def _show(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
