"""Budgets as people write them: 82M parameters, 23% of them, 5x fewer, or a number of layers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from probescale.errors import UserError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_HINT = "write 82M (parameters), 23% (of all parameters), 5x (times fewer), or give k"


@dataclass(frozen=True)
class Budget:
    """Either a limit on all parameters (embeddings and head counted) or a number of layers."""

    text: str
    where: str = "selection."  # how errors name the fields: selection.k, or --k on the command line
    k: int | None = None
    parameters: int | None = None
    share: float | None = None  # of the original's parameters

    def limit(self, original: int) -> int | None:
        """The most parameters a subnetwork of this original may have; None when layers are counted instead."""
        if self.share is not None:
            return math.floor(self.share * original + 1e-6)
        return self.parameters


def parse_budget(budget: str | float | None = None, k: int | None = None, *, where: str = "selection.") -> Budget:
    """
    >>> parse_budget("5x").limit(355_000_000)
    71000000
    """
    field = f"{where}budget"
    if (budget is None) == (k is None):
        raise UserError("give exactly one of a budget and k", field=field, hint=_HINT)
    if k is not None:
        if k < 1:
            raise UserError(f"k is {k}", field=f"{where}k", hint="keep at least one layer")
        return Budget(f"k={k}", where, k=k)
    text = str(budget).strip()
    if match := re.fullmatch(_NUMBER + r"\s*([KMB]?)", text, re.IGNORECASE):
        return _positive(Budget(text, where, parameters=round(float(match[1]) * _UNITS[match[2].upper()])), field)
    if match := re.fullmatch(_NUMBER + r"\s*%", text):
        return _positive(Budget(text, where, share=float(match[1]) / 100), field)
    if match := re.fullmatch(_NUMBER + r"\s*[x×]", text, re.IGNORECASE):  # noqa: RUF001 - people paste the sign
        return _positive(Budget(text, where, share=1 / float(match[1]) if float(match[1]) else 0.0), field)
    raise UserError(f'"{text}" is not a budget', field=field, hint=_HINT)


def _positive(budget: Budget, field: str) -> Budget:
    size = budget.parameters if budget.share is None else budget.share
    if not size:
        raise UserError(f'"{budget.text}" leaves no parameters', field=field, hint=_HINT)
    if budget.share is not None and budget.share > 1:
        raise UserError(f'"{budget.text}" is more than the original model', field=field, hint=_HINT)
    return budget
