"""What differs between two settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def list_differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> list[tuple[str, Any, Any]]:
    """Every setting that is not the same in both: its dotted name, and both values.

    >>> list_differences({"seed": 0, "recovery": {"epochs": 3}}, {"seed": 0, "recovery": {"epochs": 4}})
    [('recovery.epochs', 3, 4)]
    """
    found = []
    for key in dict.fromkeys((*one, *other)):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += list_differences(a, b, f"{path}{key}.")
        elif a != b:
            found.append((f"{path}{key}", a, b))
    return found
