"""Why a selection cannot be made, in words: a gap that contradicts a strategy, useless scores, too small a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probescale.errors import UserError
from probescale.selection.budget import format_amount
from probescale.selection.constraints import Bound, Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.strategies import STRATEGIES

# The same criterion for a strategy that keeps contiguous blocks, without that restriction.
_WITHOUT_BLOCKS = {"contiguous": "best_scores", "stitched": "stitched_search"}


def refuse_gap(strategy: str, constraints: Constraints) -> None:
    """Raise where the structure demands a gap and the strategy keeps contiguous blocks."""
    structure = constraints.full_structure
    if STRATEGIES[strategy].contiguous and structure.gap > 1 and constraints.budget.k != 1:
        other = _WITHOUT_BLOCKS.get(strategy, "best_scores")
        raise UserError(
            f"{strategy} keeps neighbouring layers, which a gap of {structure.gap} forbids",
            field=f"{structure.where}gap",
            hint=f"use a gap of 1, or another strategy, such as {other}",
        )


def refuse_useless_scores(evidence: Evidence, strategy: str, k: int) -> None:
    """Raise where the scores that the strategy reads are not finite, or all equal: any answer would be arbitrary."""
    relevance = list(evidence.relevance)
    if bad := [layer for layer, value in enumerate(relevance, 1) if not math.isfinite(value)]:
        raise UserError(
            f"the score of layer {bad[0]} is {relevance[bad[0] - 1]}", field="SCORES", hint="give finite scores"
        )
    blocks = [value for subset, value in evidence.subnetworks.items() if len(subset) == k]
    read = {"relevance": relevance, "flow": list(evidence.influence or ()), "blocks": blocks}
    values: Sequence[float] = read.get(STRATEGIES[strategy].reads, [])
    if len(values) > 1 and max(values) == min(values) and k < evidence.layers:
        raise UserError(
            f"{strategy} chooses by scores, and all of them are {values[0]:g}: they do not say which layers to keep",
            field="SCORES",
            hint="probe with more data or another property, or use bottom_k, which needs no scores",
        )


def nothing_fits(evidence: Evidence, constraints: Constraints, strategy: str) -> UserError:
    """The error that names the smallest possible budget, and says where the embeddings alone exceed the given one."""
    structure, budget = constraints.full_structure, constraints.budget
    smallest = list(STRATEGIES[strategy].choose(evidence, structure.sizes(evidence.layers)[0], structure))
    for bound in constraints.bounds:
        least = min(bound.cost.of(kept) for kept in smallest)
        if least > bound.most:
            unit = bound.limit.unit
            return UserError(
                f"{bound.limit.text} allows {format_amount(bound.most, unit)}; one layer, the embeddings and the head "
                f"already have {format_amount(least, unit)}",
                field=f"{budget.where}budget",
                hint=_smallest_budget(bound, least),
            )
    return UserError(f"no subset fits {budget.text} as a whole", field=f"{budget.where}budget", hint="loosen one limit")


def _smallest_budget(bound: Bound, least: float) -> str:
    cost, unit = bound.cost, bound.limit.unit
    percent = math.ceil(1000 * least / cost.total) / 10
    hint = f"the smallest budget is {format_amount(least, unit)} ({percent}% of {format_amount(cost.total, unit)})"
    if unit not in ("parameters", "megabytes"):
        return hint
    if cost.fixed > bound.most:
        hint += (
            f". Without any layer there are {format_amount(cost.fixed, unit)}, "
            f"{format_amount(cost.fixed - bound.most, unit)} too many"
        )
    if cost.original is None:
        hint += ". A smaller vocabulary or narrower embeddings would help: `shrink: auto` in a run's settings (of "
        hint += "generative models, `shrink.vocabulary: task`)"
    return hint
