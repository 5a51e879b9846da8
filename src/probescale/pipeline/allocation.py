"""One budget over layers and everything beside them: how to spend it, by what probes find.

Every way to make the parts beside the layers smaller leaves room for some number of layers. What each part loses is
measured on its own, by probing a subnetwork made smaller in that part alone; a way is judged by what its layers know,
less the losses of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from probescale.config import RunConfig, ShrinkConfig
from probescale.errors import UserError
from probescale.models.parameters import Parameters
from probescale.models.shrink import embeddings as factorise
from probescale.models.shrink import units as width
from probescale.models.shrink.shrinker import Shrinker, ShrinkPlan
from probescale.models.shrink.vocabulary import required_tokens
from probescale.models.subsets import Subset
from probescale.models.surgery import keep_layers
from probescale.probing.stitched import Prober
from probescale.tasks.task import Task
from probescale.utils.files import Record

COVERED = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95)  # shares of the texts' tokens that stay one piece
NARROWER = (2, 3, 4, 6)  # the embeddings' width, divided by these
FEWER = (2, 4, 8)  # the feed-forward units, divided by these
SHOWN = 10


class Split(Record):
    """One way to spend the budget."""

    shrink: ShrinkPlan
    kept: Subset
    params: int
    expected: float  # bits: what probes find in the layers, less what the smaller parts lose


class Splits(Record):
    """All ways that were weighed, the best first. Saved as split.json."""

    splits: tuple[Split, ...]
    losses: dict[str, float]  # of each smaller part on its own, in bits
    weighed: int

    @property
    def best(self) -> Split:
        return self.splits[0]


def options(shrinker: Shrinker, asked: ShrinkConfig) -> list[ShrinkPlan]:
    """Every way that the settings allow; the parts as they are first."""
    return [
        ShrinkPlan(vocabulary=pieces, rank=rank, units=units)
        for pieces, rank, units in product(
            _vocabularies(shrinker, asked.vocabulary), _ranks(shrinker, asked.rank), _units(shrinker, asked.units)
        )
    ]


def smallest(shrinker: Shrinker, ways: Sequence[ShrinkPlan]) -> Parameters:
    """Of the way that leaves most room for layers."""
    return min((shrinker.count_parameters(way) for way in ways), key=lambda found: found.of([]) + found.layers[0])


def choose(
    shrinker: Shrinker,
    ways: Sequence[ShrinkPlan],
    kept_with: Callable[[Parameters], Subset | None],
    task: Task,
    config: RunConfig,
) -> Splits:
    """Weigh all ways. `kept_with` says which layers would be kept with such parameters; None: nothing fits."""
    fitting = [(way, kept) for way in ways if (kept := kept_with(shrinker.count_parameters(way)))]
    if not fitting:
        raise UserError(
            "nothing fits the budget, however small the embeddings are made",
            field="selection.budget",
            hint="choose a larger budget, or a smaller model",
        )
    fitting = [one for one in fitting if not any(_better(other, one) for other in fitting)]
    prober = Prober(shrinker.loaded, task, config)
    knows = prober.score(list({kept for _, kept in fitting}))
    reference = sorted((kept for _, kept in fitting), key=len)[len(fitting) // 2]
    losses = {one: _loss(shrinker, one, reference, task, config) for one in _alone(way for way, _ in fitting)}
    splits = [
        Split(
            shrink=way,
            kept=kept,
            params=shrinker.count_parameters(way).of(kept),
            expected=knows[kept] - sum(losses[one] for one in _alone([way])),
        )
        for way, kept in fitting
    ]
    ranked = sorted(splits, key=lambda split: (-split.expected, split.params))
    named = {str(one): round(loss, 4) for one, loss in losses.items()}
    return Splits(splits=tuple(ranked[:SHOWN]), losses=named, weighed=len(ranked))


def _better(one: tuple[ShrinkPlan, Subset], other: tuple[ShrinkPlan, Subset]) -> bool:
    """At least as much of everything, and more of something."""
    return one != other and all(a >= b for a, b in zip(_sizes(one), _sizes(other), strict=True))


def _sizes(one: tuple[ShrinkPlan, Subset]) -> tuple[float, ...]:
    way, kept = one
    whole = float("inf")
    return len(kept), *(whole if part is None else part for part in (way.vocabulary, way.rank, way.units))


def _alone(ways: Iterable[ShrinkPlan]) -> list[ShrinkPlan]:
    """The parts of these ways, each on its own."""
    found: dict[ShrinkPlan, None] = {}
    for way in ways:
        for part, value in way.model_dump().items():
            if value is not None:
                found[ShrinkPlan(**{part: value})] = None
    return list(found)


def _loss(shrinker: Shrinker, way: ShrinkPlan, kept: Subset, task: Task, config: RunConfig) -> float:
    """What a subnetwork knows less with one smaller part. Chance can make it negative: then it is nothing."""
    whole = keep_layers(shrinker.loaded, kept)
    every = tuple(range(1, len(kept) + 1))
    values = [Prober(model, task, config).score([every])[every] for model in (whole, shrinker.shrink(whole, kept, way))]
    return max(values[0] - values[1], 0.0)


def _vocabularies(shrinker: Shrinker, asked: str | int) -> list[int | None]:
    model = shrinker.loaded.model.config
    if asked == "all":
        return [None]
    if isinstance(asked, int):
        return [min(asked, model.vocab_size)]
    counts, basis = shrinker.token_counts, required_tokens(shrinker.loaded.tokenizer, shrinker.token_counts)
    names = set(shrinker.loaded.tokenizer.convert_ids_to_tokens(sorted(basis)))
    total, covered = sum(counts.values()), sum(n for piece, n in counts.items() if piece in names)
    sizes, pieces = {}, len(basis)
    shares = list(COVERED)
    for piece, count in counts.most_common():
        while shares and covered >= min(shares) * total:
            sizes[shares.pop()] = pieces
        if piece not in names:
            pieces, covered = pieces + 1, covered + count
    sizes |= dict.fromkeys(shares, pieces)
    if asked == "task":
        return [min(sizes[1.0], model.vocab_size)]
    return [None, *dict.fromkeys(min(sizes[share], model.vocab_size) for share in COVERED)]


def _ranks(shrinker: Shrinker, asked: str | int) -> list[int | None]:
    config, family = shrinker.loaded.model.config, shrinker.loaded.family
    if asked == "full" or (asked == "auto" and factorise.why_rank_is_fixed(family, config)):
        return [None]
    if isinstance(asked, int):
        factorise.check_rank(asked, family, config)
        return [asked]
    return [None, *(config.hidden_size // part for part in NARROWER)]


def _units(shrinker: Shrinker, asked: str | int) -> list[int | None]:
    model, family = shrinker.loaded.model, shrinker.loaded.family
    if asked == "all" or (asked == "auto" and width.why_width_is_fixed(family)):
        return [None]
    if isinstance(asked, int):
        return [asked]
    whole = width.count_units(model, family)
    return [None, *(whole // part for part in FEWER)]
