"""Strategies: which k layers to keep, given the evidence. Each is a function, registered under its name.

A strategy yields subsets of k layers (numbered from 1, ascending) with the required structure, the best first; `select`
takes the first that fits the budget. The first line of the docstring is the help shown by `probescale list strategies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeVar

import numpy as np

from probescale.errors import UserError
from probescale.models.subsets import Subset, contiguous_blocks
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.structure import Structure, find_nearest, rank_by_value
from probescale.utils.registry import first_doc_line

Choose = Callable[[Evidence, int, Structure], Iterator[Subset]]
T = TypeVar("T")
Reads = Literal["nothing", "relevance", "flow", "removals", "blocks", "search", "all subsets", "tournament"]
_PROBES = ("relevance", "blocks", "search", "all subsets")


@dataclass(frozen=True)
class Strategy:
    """A registered strategy: its function, and what it needs."""

    choose: Choose
    reads: Reads  # what has to be measured for it
    contiguous: bool = False  # it keeps contiguous blocks only, so a gap contradicts it
    proposers_read: tuple[Reads, ...] = ()  # what is measured for the strategies whose proposals it compares
    decides_allocation: bool = False  # it also decides how the budget is shared between layers and embeddings

    @property
    def needs(self) -> set[Reads]:
        """Everything that is measured before it can choose."""
        return {self.reads, *self.proposers_read}

    @property
    def by_probes(self) -> bool:
        """Whether it uses probe scores, which can be resampled to say how certain the choice is."""
        return self.reads in _PROBES

    @property
    def help(self) -> str:
        """The sentence that `probescale list strategies` shows."""
        return first_doc_line(self.choose)


STRATEGIES: dict[str, Strategy] = {}


def strategy(
    reads: Reads,
    *,
    contiguous: bool = False,
    proposers_read: tuple[Reads, ...] = (),
    decides_allocation: bool = False,
) -> Callable[[Choose], Choose]:
    """Register a function as a strategy, under the function's name."""

    def register(function: Choose) -> Choose:
        STRATEGIES[function.__name__] = Strategy(function, reads, contiguous, proposers_read, decides_allocation)
        return function

    return register


def default_for(evidence: Evidence, constraints: Constraints) -> str:
    """`stitched` if every contiguous block that it may compare was probed; else `contiguous`, the paper's rule."""
    if not evidence.subnetworks:
        return "contiguous"
    layers, structure = evidence.layers, constraints.full_structure
    blocks = (block for k in constraints.sizes(layers) for block in _blocks(layers, k, structure))
    return "stitched" if all(block in evidence.subnetworks for block in blocks) else "contiguous"


def probing_strategy(gap: int) -> str:
    """The strategy by probes that takes the place of `tried`: its blocks are no choice where layers must lie apart."""
    return "stitched" if gap == 1 else "marginal"


def sum_relevance(relevance: Sequence[float], kept: Subset) -> float:
    """The sum that Eq. 2 maximises, rounded: sums that are equal up to rounding errors tie."""
    return round(math.fsum(relevance[layer - 1] for layer in kept), 12)


@strategy("relevance", contiguous=True)
def contiguous(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The paper's rule (Eq. 2): the contiguous block of k layers with the largest sum of relevance."""
    blocks = _blocks(evidence.layers, k, structure)
    # Ties go to the lower start: sorting is stable and the blocks come in that order.
    yield from sorted(blocks, key=lambda block: -sum_relevance(evidence.relevance, block))


@strategy("nothing")
def top_k(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The paper's baseline: the last k layers."""
    yield from _place(lambda layers, k: range(layers - k + 1, layers + 1), evidence.layers, k, structure)


@strategy("nothing")
def uniform_k(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The paper's baseline: k layers evenly spaced, L/k, 2L/k, ..., L."""
    yield from _place(
        lambda layers, k: (math.floor(i * layers / k + 0.5) for i in range(1, k + 1)), evidence.layers, k, structure
    )


@strategy("nothing")
def bottom_k(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The first k layers (Sajjad et al.)."""
    yield from _place(lambda _, k: range(1, k + 1), evidence.layers, k, structure)


@strategy("nothing")
def alternate(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """Drops every second layer from the top, and repeats until k are left."""
    yield from _place(_alternate, evidence.layers, k, structure)


@strategy("nothing")
def random(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """k layers drawn at random with the seed."""
    draw = np.random.default_rng((evidence.seed, k))
    yield from rank_by_value(draw.random(evidence.layers).tolist(), k, structure)


@strategy("relevance")
def best_scores(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The k layers with the largest relevance, contiguous or not."""
    yield from rank_by_value(evidence.relevance, k, structure)


@strategy("relevance")
def marginal(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The k layers with the largest gain in relevance over the layer below."""
    if evidence.embeddings_relevance is None:
        raise UserError(
            "marginal needs the score of the embeddings, to which the first layer adds",
            field=f"{structure.where}strategy",
            hint="use scores written by `probescale probe`, or another strategy",
        )
    gains = np.diff([evidence.embeddings_relevance, *evidence.relevance])
    yield from rank_by_value(gains.tolist(), k, structure)


@strategy("flow")
def block_influence(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The k layers that change their input most, 1 - cos (ShortGPT); needs no labels."""
    yield from rank_by_value(_require_flow(evidence.influence, "block_influence", structure), k, structure)


@strategy("flow")
def angular(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """All but the contiguous block with the least angle between input and output (Gromov et al.); needs no labels."""
    angles, layers = _require_flow(evidence.angles, "angular", structure), evidence.layers
    starts = sorted(range(k + 1), key=lambda before: angles[before][before + layers - k])
    rest = [(*range(1, before + 1), *range(before + layers - k + 1, layers + 1)) for before in starts]
    allowed = [subset for subset in rest if structure.allows(subset)]
    yield from allowed
    if not allowed:  # dropping one block never gives the required structure
        yield from rank_by_value([angles[layer][layer + 1] for layer in range(layers)], k, structure)


@strategy("removals")
def drop_loss(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """Takes out layer after layer, always the one without which the task's loss is lowest (SLEB, Shortened LLaMA)."""
    order, layers = evidence.removals, evidence.layers
    if layers - len(order) > k:
        raise UserError(
            f"drop_loss takes layers out by the loss of the trained model, and the scores end at {layers - len(order)} "
            f"of {layers} layers",
            field=f"{structure.where}strategy",
            hint="use `probescale run` with the same k or budget",
        )
    late = {layer: step for step, layer in enumerate(order)}
    yield from rank_by_value([late.get(layer, layers) for layer in range(1, layers + 1)], k, structure)


@strategy("blocks", contiguous=True)
def stitched(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The contiguous block of k layers that probes best when run on the embeddings, as it will be after the cut."""
    blocks = _blocks(evidence.layers, k, structure)
    if missing := [block for block in blocks if block not in evidence.subnetworks]:
        raise not_probed("stitched", missing[0], structure)
    yield from sorted(blocks, key=lambda block: -evidence.subnetworks[block])


@strategy("search")
def stitched_search(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The best of any k layers by the measure of `stitched`, found by beam search."""
    subsets = [subset for subset in evidence.subnetworks if len(subset) == k and structure.allows(subset)]
    if not subsets and not _beyond(evidence, k):
        raise not_probed("stitched_search", tuple(range(1, k + 1)), structure)
    yield from sorted(subsets, key=lambda subset: (-evidence.subnetworks[subset], subset))


@strategy("all subsets")
def exhaustive(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The best of all subsets of k layers by the measure of `stitched`: for models with few layers."""
    if _beyond(evidence, k):
        return
    subsets = []
    for subset in filter(structure.allows, combinations(range(1, evidence.layers + 1), k)):
        if subset not in evidence.subnetworks:  # at once: there may be millions of others
            raise not_probed("exhaustive", subset, structure)
        subsets.append(subset)
    yield from sorted(subsets, key=lambda subset: -evidence.subnetworks[subset])


@strategy("tournament", proposers_read=("flow", "blocks"), decides_allocation=True)
def tried(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
    """The best of other strategies' proposals after a short training each; only in `probescale run`."""
    if not evidence.tournament:
        raise UserError(
            "tried decides by short trainings, which only `probescale run` does",
            field=f"{structure.where}strategy",
            hint="use `probescale run` with it, or stitched here",
        )
    winner = evidence.tournament[0]
    if k <= len(winner):  # larger candidates lost
        yield from (subset for subset in evidence.tournament if len(subset) == k)


def _blocks(layers: int, k: int, structure: Structure) -> list[Subset]:
    """Contiguous blocks of the layers that may be dropped, together with the layers that must stay."""
    blocks = contiguous_blocks(layers, k, structure.keep)
    return [block for block in blocks if not structure.contiguous or structure.allows(block)]


def _place(
    rule: Callable[[int, int], Sequence[int] | Iterator[int]], layers: int, k: int, structure: Structure
) -> Iterator[Subset]:
    """The subset that a rule of positions gives, moved as little as the structure requires.

    `rule(n, m)` gives m positions from 1 to n. It is applied to the layers that may be dropped.
    """
    free = [layer for layer in range(1, layers + 1) if layer not in structure.keep]
    more = k - len(structure.keep)
    if more < 0:
        return
    chosen = [free[place - 1] for place in rule(len(free), more)] if more else []
    nearest = find_nearest(sorted((*structure.keep, *chosen)), layers, structure)
    if nearest:
        yield nearest


def _alternate(layers: int, k: int) -> list[int]:
    """Layers that are left when every second one is dropped until k remain.

    >>> _alternate(12, 8), _alternate(12, 4)
    ([1, 2, 3, 4, 5, 7, 9, 11], [1, 3, 5, 9])
    """
    left = list(range(1, layers + 1))
    while len(left) > k:
        for layer in left[::-2][: len(left) - k]:
            left.remove(layer)
    return left


def _require_flow(measured: T | None, name: str, structure: Structure) -> T:
    """What was measured on texts, or an error where the scores do not have it."""
    if measured is None:
        raise UserError(
            f"{name} uses how texts flow through the layers, which the scores do not contain",
            field=f"{structure.where}strategy",
            hint=f"probe again with --set selection.strategy={name}",
        )
    return measured


def _beyond(evidence: Evidence, k: int) -> bool:
    """Whether k is more layers than the budget allowed when subnetworks were probed."""
    return bool(evidence.subnetworks) and k > max(map(len, evidence.subnetworks))


def not_probed(name: str, subset: Subset, structure: Structure) -> UserError:
    """The error where the scores lack a subnetwork that a strategy needs."""
    return UserError(
        f"{name} uses probes of subnetworks, and the scores have none of layers {', '.join(map(str, subset))}",
        field=f"{structure.where}strategy",
        hint=f"probe again with --set selection.strategy={name} and the same k or budget",
    )
