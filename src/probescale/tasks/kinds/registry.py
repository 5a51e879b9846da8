"""Kinds of task by the name they have in a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from probescale.errors import lookup
from probescale.tasks.kinds.kind import Kind

K = TypeVar("K", bound=Kind)
KINDS: dict[str, Kind] = {}


def task_kind(name: str) -> Callable[[type[K]], type[K]]:
    """Register a Kind under the name that `task.kind` gives it in a configuration."""

    def register(cls: type[K]) -> type[K]:
        cls.name = name
        KINDS[name] = cls()
        return cls

    return register


def find_kind(name: str, *, field: str = "task.kind") -> Kind:
    """The kind of this name, or an error that lists the known ones."""
    return lookup(KINDS, name, field=field)


def kind_for_head(head: str, problem_type: str | None = None) -> Kind | None:
    """The first registered kind that a stock head answers; None for a model without a head.

    `problem_type`: as the model's config names it; one that no kind has is the head's own.
    """
    fitting = [kind for kind in KINDS.values() if kind.head == head != "none"]
    return next((kind for kind in fitting if kind.problem_type == problem_type), fitting[0] if fitting else None)
