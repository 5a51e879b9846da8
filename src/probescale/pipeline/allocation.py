"""Share one budget between layers, vocabulary, embeddings and feed-forward width, by what probes find.

Every way of shrinking leaves room for some number of layers. What each smaller part loses is measured on its own, by
probing a subnetwork with that part alone shrunk; an allocation is judged by what its layers know, less those losses as
far as training does not win them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.models.shrink.options import expected_coverages
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.shrinker import Shrinker
from probescale.models.subsets import Subset
from probescale.models.surgery import keep_layers
from probescale.pipeline.workbench import Workbench
from probescale.probing.scores import ProbeScores
from probescale.probing.subnetwork_prober import SubnetworkProber
from probescale.selection.evidence import Evidence
from probescale.selection.strategies import probing_strategy
from probescale.tasks.sampling import split_rows
from probescale.utils.files import Record
from probescale.utils.progress import console

NEW_TEXTS = 0.5  # of train: on these it is measured what a smaller part loses
FEWEST_NEW = 50
# Of what narrower embeddings and layers lose, the final training wins back about half. What a missing token would have
# told about a new text, no training brings back. (docs/results/compression.md)
WON_BACK = 0.5
KEPT_IN_FILE = 10  # of the best allocations, beside the best for every number of layers


class Allocation(Record):
    """One way to spend the budget."""

    shrink: ShrinkPlan
    kept: Subset
    params: int
    expected: float  # bits: what probes find in the layers, less what the smaller parts lose for good


class Allocations(Record):
    """The best allocations, best first. Saved as allocation.json."""

    allocations: tuple[Allocation, ...]
    losses: dict[str, float]  # of each smaller part on its own, in bits
    compared: int

    @property
    def best(self) -> Allocation:
        return self.allocations[0]

    @property
    def shrinks(self) -> list[ShrinkPlan]:
        """The best way of shrinking for every number of layers, the best of all first."""
        by_layers: dict[int, ShrinkPlan] = {}
        for allocation in self.allocations:
            by_layers.setdefault(len(allocation.kept), allocation.shrink)
        return list(by_layers.values())


def allocate(bench: Workbench, scores: ProbeScores, path: Path, larger: Path | None = None) -> list[ShrinkPlan]:
    """How to shrink what is not a layer: the best way for every number of layers, the best of all first.

    Kept in a file, as it takes some passes through the model. `larger`: the file of a larger size in the same ladder;
    what smaller parts lose is measured there once for all.
    """
    if len(bench.shrinks) == 1:
        return bench.shrinks
    if not path.exists():
        rank_allocations(bench, scores, Allocations.load(larger).losses if larger else {}).save(path)
    ranked = Allocations.load(path)
    if not bench.strategy.decides_allocation:
        layers = len(ranked.best.kept)
        console.print(f"the budget goes to {layers} layer{'s' * (layers > 1)}, {ranked.best.shrink}")
    return ranked.shrinks


def rank_allocations(bench: Workbench, scores: ProbeScores, known: Mapping[str, float] | None = None) -> Allocations:
    """The allocations that fit the budget, best first; without those that another one equals or exceeds in all parts.

    `known`: what some smaller parts lose, which is not measured again.
    """
    evidence, strategy = Evidence.from_scores(scores), _sizing_strategy(bench)
    fitting = [(way, kept) for way in bench.shrinks if (kept := bench.propose(strategy, evidence, way))]
    if not fitting:
        raise UserError(
            "nothing fits the budget, however small the embeddings are made",
            field="selection.budget",
            hint="choose a larger budget, or a smaller model",
        )
    fitting = [pair for pair in fitting if not any(_dominates(other, pair) for other in fitting)]
    prober = SubnetworkProber(bench.loaded, bench.task, bench.config)
    knows = prober.score(list({kept for _, kept in fitting}))
    reference = sorted((kept for _, kept in fitting), key=len)[len(fitting) // 2]
    parts, known = _single_parts(way for way, _ in fitting), known or {}
    losses = {part: known[str(part)] for part in parts if str(part) in known}
    if unknown := [part for part in parts if part not in losses]:
        losses |= _information_lost(bench, unknown, reference)
    least = least_lost(bench.shrinker, parts)
    allocations = [
        Allocation(
            shrink=way,
            kept=kept,
            params=bench.shrinker.count_parameters(way).of(kept),
            expected=knows[kept]
            - sum(_stays_lost(part, max(losses[part], least[part] * knows[kept])) for part in _single_parts([way])),
        )
        for way, kept in fitting
    ]
    ranked = sorted(allocations, key=lambda allocation: (-allocation.expected, allocation.params))
    named = {**known, **{str(part): round(loss, 4) for part, loss in losses.items()}}
    best_of_size = {len(allocation.kept): allocation for allocation in reversed(ranked)}.values()
    kept = [one for place, one in enumerate(ranked) if place < KEPT_IN_FILE or one in best_of_size]
    return Allocations(allocations=tuple(kept), losses=named, compared=len(ranked))


def _sizing_strategy(bench: Workbench) -> str:
    """The strategy that says how many layers fit; a tournament chooses the layers themselves only later."""
    if not bench.strategy.decides_allocation:
        return bench.config.selection.strategy
    return probing_strategy(bench.structure.gap)


def _dominates(one: tuple[ShrinkPlan, Subset], other: tuple[ShrinkPlan, Subset]) -> bool:
    """At least as much of everything, and more of something."""
    return one != other and all(a >= b for a, b in zip(_sizes(one), _sizes(other), strict=True))


def _sizes(allocation: tuple[ShrinkPlan, Subset]) -> tuple[float, ...]:
    way, kept = allocation
    return len(kept), *(float("inf") if part is None else part for part in (way.vocabulary, way.rank, way.units))


def _single_parts(shrinks: Iterable[ShrinkPlan]) -> list[ShrinkPlan]:
    """Every smaller part of these ways, each on its own."""
    sizes = (size for shrink in shrinks for size in shrink.model_dump(exclude_none=True).items())
    return [ShrinkPlan(**{part: size}) for part, size in dict.fromkeys(sizes)]


def least_lost(shrinker: Shrinker, parts: Sequence[ShrinkPlan]) -> dict[ShrinkPlan, float]:
    """The least that each smaller part loses, as a share of what the layers know, even where probes find no loss.

    Where states say little before the training, as for pairs of texts, a probe does not see what is missing. Missing
    tokens cost their share of new texts, narrower embeddings the square of the variance that they do not hold: about
    what probes find for named entities, which states tell well. (docs/results/compression.md)
    """
    coverages = expected_coverages(shrinker, [part.vocabulary for part in parts if part.vocabulary is not None])
    held = shrinker.held_variances([rank for part in parts if (rank := part.rank) is not None])
    by_vocabulary = {size: 1 - share for size, share in coverages.items()}
    by_rank = {rank: (1 - share) ** 2 for rank, share in held.items()}
    return {part: by_vocabulary.get(part.vocabulary or 0, 0.0) + by_rank.get(part.rank or 0, 0.0) for part in parts}


def _stays_lost(part: ShrinkPlan, loss: float) -> float:
    """What a smaller part is expected to lose after the final training, in bits."""
    return loss if part.vocabulary is not None else (1 - WON_BACK) * loss


def _information_lost(bench: Workbench, parts: Sequence[ShrinkPlan], kept: Subset) -> dict[ShrinkPlan, float]:
    """Information lost by shrinking each part alone, in bits, clipped at zero: chance can make it negative.

    Measured on half of the training texts, while parts are chosen by all other texts: a token or a unit that only
    known texts can do without is missed on new ones.
    """
    texts, train = bench.shrinker.texts, bench.task.train
    _, new = split_rows(train.classes, NEW_TEXTS, bench.config.seed)
    old = sorted(set(range(len(texts))).difference(new))  # training texts come first
    shrinker = Shrinker(bench.loaded, texts.take(old), max_length=bench.config.model.max_length)
    task = bench.task.with_rows(new)
    if min(map(len, (task.train, *task.probe_data.values()))) < FEWEST_NEW:
        task = bench.task  # a probe could not be trained and tested on so few
    cut = keep_layers(bench.loaded, kept)
    every = tuple(range(1, len(kept) + 1))

    def probed(model: LoadedModel) -> float:
        return SubnetworkProber(model, task, bench.config).score([every])[every]

    before = probed(cut)
    return {part: max(before - probed(shrinker.shrink(cut, kept, part)), 0.0) for part in parts}
