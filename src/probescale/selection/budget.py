"""Budgets as people write them: 82M parameters, 23% of them, 5x fewer, 12 GFLOPs, 150MB, 20ms, or so many layers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probescale.errors import UserError

Unit = Literal["parameters", "gflops", "megabytes", "milliseconds"]
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
# What stands behind the number -> unit, and how many of the unit it is. Case does not matter.
_UNITS: dict[str, tuple[Unit, float]] = {
    "": ("parameters", 1), "k": ("parameters", 10**3), "m": ("parameters", 10**6), "b": ("parameters", 10**9),
    "mflop": ("gflops", 1e-3), "gflop": ("gflops", 1), "tflop": ("gflops", 1e3),
    "mflops": ("gflops", 1e-3), "gflops": ("gflops", 1), "tflops": ("gflops", 1e3),
    "kb": ("megabytes", 1e-3), "mb": ("megabytes", 1), "gb": ("megabytes", 1e3),
    "ms": ("milliseconds", 1), "s": ("milliseconds", 1e3),
}  # fmt: skip
UNIT_NAMES: dict[Unit, str] = {
    "parameters": "parameters",
    "gflops": "GFLOPs",
    "megabytes": "MB",
    "milliseconds": "ms",
}
_HINT = "write 82M (parameters), 23% (of all parameters), 5x (times fewer), 12 GFLOPs, 150MB or 20ms"


@dataclass(frozen=True)
class Limit:
    """The most that a subnetwork may cost in one unit; parameters count embeddings and head."""

    text: str
    unit: Unit
    amount: float | None = None
    share: float | None = None  # instead of an amount: of the original's parameters

    def most(self, original: float) -> float:
        """The limit for a subnetwork of this original, in the unit."""
        if self.amount is not None:
            return self.amount
        return math.floor((self.share or 0) * original + 1e-6)


@dataclass(frozen=True)
class Budget:
    """A number of layers, or limits that all hold; both together: at most so many layers."""

    text: str
    where: str = "selection."  # how errors name the fields: selection.k, or --k on the command line
    k: int | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def units(self) -> set[Unit]:
        return {limit.unit for limit in self.limits}


def parse_budget(
    budget: str | float | Sequence[str | float] | None = None, k: int | None = None, *, where: str = "selection."
) -> Budget:
    """
    >>> parse_budget("5x").limits[0].most(355_000_000)
    71000000
    >>> [limit.unit for limit in parse_budget("82M, 20ms").limits]
    ['parameters', 'milliseconds']
    """
    field = f"{where}budget"
    listed = list(budget) if isinstance(budget, (list, tuple)) else [] if budget is None else [budget]
    plain = [re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", str(one)) for one in listed]  # 82,000,000
    texts = [part.strip() for one in plain for part in one.split(",")]
    if not texts and k is None:
        raise UserError("give a budget, k, or both", field=field, hint=f"{_HINT}; or k layers")
    if k is not None and k < 1:
        raise UserError(f"k is {k}", field=f"{where}k", hint="keep at least one layer")
    text = ", ".join([*texts, *([f"k={k}"] if k is not None else [])])
    return Budget(text, where, k, tuple(_limit(one, field) for one in texts))


def _limit(text: str, field: str) -> Limit:
    if match := re.fullmatch(_NUMBER + r"\s*%", text):
        found = Limit(text, "parameters", share=float(match[1]) / 100)
    elif match := re.fullmatch(_NUMBER + r"\s*[x×]", text, re.IGNORECASE):  # noqa: RUF001 - people paste the sign
        found = Limit(text, "parameters", share=1 / float(match[1]) if float(match[1]) else 0.0)
    elif (match := re.fullmatch(_NUMBER + r"\s*([a-zA-Z]*)", text)) and match[2].lower() in _UNITS:
        unit, factor = _UNITS[match[2].lower()]
        amount = float(match[1]) * factor
        found = Limit(text, unit, amount=round(amount) if unit == "parameters" else amount)
    else:
        raise UserError(f'"{text}" is not a budget', field=field, hint=_HINT)
    if not (found.amount or found.share):
        raise UserError(f'"{text}" leaves nothing', field=field, hint=_HINT)
    if found.share is not None and found.share > 1:
        raise UserError(f'"{text}" is more than the original model', field=field, hint=_HINT)
    return found


def format_amount(value: float, unit: Unit) -> str:
    """
    >>> format_amount(1_000_000, "parameters"), format_amount(3.21, "milliseconds")
    ('1,000,000 parameters', '3.2 ms')
    """
    number = f"{value:,.0f}" if unit == "parameters" else f"{value:,.1f}" if value >= 0.1 else f"{value:.3g}"
    return f"{number} {UNIT_NAMES[unit]}"
