"""Sweeps over many cases: one representative case runs with `make test`, all of them with `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")


def sweep(cases: Iterable[Case], *, always: Collection[Case]) -> list[object]:
    """Parameters of a test: the cases in `always` as they are, the others marked `long`."""
    return [case if case in always else pytest.param(case, marks=pytest.mark.long) for case in cases]
