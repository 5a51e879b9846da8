"""Provenance, which every result records so that it can be reproduced: model, data, versions, seed, command."""

from __future__ import annotations

import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from probescale.models.loading import LoadedModel
from probescale.models.tokenizers import tokenizer_fingerprint
from probescale.tasks.task import Task
from probescale.utils.sanitize import redact_secrets

_PACKAGES = ("probescale", "torch", "transformers", "scikit-learn", "numpy")


def provenance(loaded: LoadedModel, task: Task | None = None, seed: int | None = None) -> dict[str, Any]:
    """The record of what a result was computed from: model, data, seed, versions and command."""
    record: dict[str, Any] = {
        "model": loaded.source,
        "model_sha256": loaded.fingerprint,
        "tokenizer_sha256": loaded.own_tokenizer and tokenizer_fingerprint(loaded.own_tokenizer),
        "versions": versions(),
        "command": command(sys.argv),
    }
    if task is not None:
        record |= {"task": task.name, "data_sha256": task.fingerprints}
    if seed is not None:
        record["seed"] = seed
    return record


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def command(argv: list[str]) -> str:
    """The command as typed, without the output folder: equal runs have equal records. From Python: "python".

    >>> command(["/usr/bin/probescale", "run", "a b.yaml", "--out", "x", "--overwrite"])
    "probescale run 'a b.yaml'"
    """
    program = Path(argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    if name != "probescale":
        return "python"
    rest = iter(argv[1:])
    kept = []
    for word in rest:
        if word == "--out":
            next(rest, None)
        elif word != "--overwrite" and not word.startswith("--out="):
            kept.append(word)
    return redact_secrets(shlex.join([name, *kept]))
