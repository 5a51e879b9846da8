"""Cells of a table as they are compared: empty or not, and labels as texts."""

from __future__ import annotations

import math


def is_empty(value: object) -> bool:
    """Whether a cell holds nothing."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def label_text(value: object) -> str:
    """A label as text: 1, 1.0, "1" and " 1 " are the same, as for the readers."""
    text = str(value).strip()
    return text.removesuffix(".0") if text.removesuffix(".0").removeprefix("-").isdecimal() else text
