"""Budgets, and how they are written: 82M (parameters), 23%, 5x (times fewer), 12 GFLOPs, 150MB, 20ms, or k layers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probescale.errors import UserError

Unit = Literal["parameters", "gflops", "megabytes", "milliseconds"]
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
# Suffix -> unit and factor. Case does not matter.
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
    share: float | None = None  # of the original's parameters, instead of an amount

    def most(self, original: float) -> float:
        """The limit for a subnetwork of this original, in the unit."""
        if self.amount is not None:
            return self.amount
        return math.floor((self.share or 0) * original + 1e-6)


@dataclass(frozen=True)
class Budget:
    """A number of layers, or limits that all hold; with both, k is the largest number of layers."""

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
    """A checked budget from one text or number, or several; several limits may also be separated by commas.

    >>> parse_budget("5x").limits[0].most(355_000_000)
    71000000
    >>> [limit.unit for limit in parse_budget("82M, 20ms").limits]
    ['parameters', 'milliseconds']
    """
    field = f"{where}budget"
    listed = list(budget) if isinstance(budget, (list, tuple)) else [] if budget is None else [budget]
    plain = [re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", str(item)) for item in listed]  # 82,000,000
    texts = [part.strip() for item in plain for part in item.split(",")]
    if not texts and k is None:
        raise UserError("give a budget, k, or both", field=field, hint=f"{_HINT}; or k layers")
    if k is not None and k < 1:
        raise UserError(f"k is {k}", field=f"{where}k", hint="keep at least one layer")
    text = ", ".join([*texts, *([f"k={k}"] if k is not None else [])])
    return Budget(text, where, k, tuple(parse_limit(limit, field) for limit in texts))


def parse_limit(text: str, field: str) -> Limit:
    """One limit from its text."""
    if match := re.fullmatch(_NUMBER + r"\s*%", text):
        limit = Limit(text, "parameters", share=float(match[1]) / 100)
    elif match := re.fullmatch(_NUMBER + r"\s*[x×]", text, re.IGNORECASE):  # noqa: RUF001 - the sign is often pasted
        limit = Limit(text, "parameters", share=1 / float(match[1]) if float(match[1]) else 0.0)
    elif (match := re.fullmatch(_NUMBER + r"\s*([a-zA-Z]*)", text)) and match[2].lower() in _UNITS:
        unit, factor = _UNITS[match[2].lower()]
        amount = float(match[1]) * factor
        limit = Limit(text, unit, amount=round(amount) if unit == "parameters" else amount)
    else:
        raise UserError(f'"{text}" is not a budget', field=field, hint=_HINT)
    if not (limit.amount or limit.share):
        raise UserError(f'"{text}" leaves nothing', field=field, hint=_HINT)
    if limit.share is not None and limit.share > 1:
        raise UserError(f'"{text}" is more than the original model', field=field, hint=_HINT)
    return limit


def format_amount(value: float, unit: Unit) -> str:
    """An amount with its unit, as shown in messages.

    >>> format_amount(1_000_000, "parameters"), format_amount(3.21, "milliseconds")
    ('1,000,000 parameters', '3.2 ms')
    """
    number = f"{value:,.0f}" if unit == "parameters" else f"{value:,.1f}" if value >= 0.1 else f"{value:.3g}"
    return f"{number} {UNIT_NAMES[unit]}"
