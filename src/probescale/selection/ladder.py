"""A ladder: several sizes from one run. Its rungs in order, and which of them to take for a wish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from probescale.errors import UserError
from probescale.selection.budget import parse_limit

USUAL_RUNGS = ("2x", "3x", "5x", "10x", "20x")
FIELD = "selection.ladder"
_ANY_SIZE = 10**12  # parameters: shares of it have the order of shares of any model

Ladder = Literal["auto"] | Sequence[str | float]


def parse_ladder(ladder: Ladder) -> tuple[str, ...]:
    """The names of the rungs, the largest model first.

    >>> parse_ladder("auto"), parse_ladder(["10x", "20%", "2x"])
    (('2x', '3x', '5x', '10x', '20x'), ('2x', '20%', '10x'))
    """
    texts = USUAL_RUNGS if ladder == "auto" else [str(rung).strip() for rung in ladder]
    limits = {text: parse_limit(text, FIELD) for text in texts}
    if len({(limit.unit, limit.share is None) for limit in limits.values()}) > 1:
        raise UserError(
            f"{', '.join(texts)} have different units, so nobody can say which is larger",
            field=FIELD,
            hint="write all rungs in one unit, such as 2x, 5x, 10x",
        )
    ranked = sorted(limits, key=lambda text: -limits[text].most(_ANY_SIZE))
    if len({limits[text].most(_ANY_SIZE) for text in ranked}) < len(texts):
        raise UserError(f"{', '.join(texts)} has one size twice", field=FIELD, hint="list every size once")
    return tuple(ranked)


def rung_folder(name: str) -> str:
    """The name of a rung's folder.

    >>> rung_folder("5x"), rung_folder("20%"), rung_folder("12 GFLOPs")
    ('5x', '20pct', '12GFLOPs')
    """
    return "".join(letter for letter in name.replace("%", "pct") if letter.isalnum() or letter in ".-")
