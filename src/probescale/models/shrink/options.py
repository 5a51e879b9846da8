"""Which ways of shrinking the settings allow: combinations of vocabulary, embedding and feed-forward width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from probescale.config import Head, ShrinkConfig
from probescale.models.architecture import Architecture
from probescale.models.counting import count_parameters
from probescale.models.heads import build_on_meta
from probescale.models.parameters import Parameters
from probescale.models.shrink import embeddings, units
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.shrinker import Shrinker, count_shrunk
from probescale.models.shrink.vocabulary import count_needed, expected_shares, required_tokens

COVERAGES = (0.995, 0.98, 0.95, 0.9, 0.8)  # shares of the tokens of new texts that stay whole
WIDTH_DIVISORS = (2, 3, 4, 6)  # of the embeddings
UNIT_DIVISORS = (2, 4, 8)  # of the feed-forward width
ASSUMED_VOCABULARY = 10_000  # tokens that texts need, where there are no texts to count


def list_shrinks(shrinker: Shrinker, settings: ShrinkConfig) -> list[ShrinkPlan]:
    """Every way that the settings allow, the unshrunk parts first."""
    return [
        ShrinkPlan(vocabulary=vocabulary, rank=rank, units=width)
        for vocabulary, rank, width in product(
            _vocabulary_sizes(shrinker, settings.vocabulary),
            _embedding_widths(shrinker, settings.rank),
            _feed_forward_widths(shrinker, settings.units),
        )
    ]


def find_smallest(shrinker: Shrinker, shrinks: Sequence[ShrinkPlan]) -> ShrinkPlan:
    """The way of shrinking that leaves room for most layers."""

    def one_layer(shrink: ShrinkPlan) -> int:
        parameters = shrinker.count_parameters(shrink)
        return parameters.of([]) + parameters.layers[0]

    return min(shrinks, key=one_layer)


def count_smallest(
    architecture: Architecture, head: Head = "none", classes: int = 2
) -> tuple[ShrinkPlan, Parameters] | None:
    """The smallest that `auto` makes each part, from the config alone; None where no part can be shrunk.

    The vocabulary size depends on texts, so one is assumed.
    """
    config, family = architecture.config, architecture.family
    model = build_on_meta(family, config, head, classes, field="MODEL")
    width = units.find_units(model, family)
    rank_is_fixed = head == "lm" or embeddings.why_rank_is_fixed(family, config)
    plan = ShrinkPlan(
        vocabulary=ASSUMED_VOCABULARY if getattr(config, "vocab_size", 0) > ASSUMED_VOCABULARY else None,
        rank=None if rank_is_fixed else max(config.hidden_size // max(WIDTH_DIVISORS), 2),
        units=width and max(width // max(UNIT_DIVISORS), 1),
    )
    return (plan, count_shrunk(model, family, plan, count_parameters(model, family))) if plan else None


def _vocabulary_sizes(shrinker: Shrinker, setting: str | int) -> list[int | None]:
    full = shrinker.loaded.model.config.vocab_size
    if setting == "all":
        return [None]
    if isinstance(setting, int):
        return [min(setting, full)]
    if setting == "task":
        return [min(count_needed(shrinker.loaded, shrinker.token_counts), full)]
    seen = count_needed(shrinker.loaded, shrinker.token_counts)
    wanted = sorted({seen, *_sizes_by_coverage(shrinker)}, reverse=True)
    return [None, *(size for size in wanted if size < full)]


def _sizes_by_coverage(shrinker: Shrinker) -> list[int]:
    """For every coverage, how many tokens make up that share of new texts, with those that are always kept."""
    fewest, covered = _cover(shrinker)
    return [fewest + int(np.searchsorted(covered, coverage)) for coverage in COVERAGES]


def expected_coverages(shrinker: Shrinker, sizes: Iterable[int]) -> dict[int, float]:
    """For every size of the vocabulary, the share of the tokens of new texts that stay whole."""
    fewest, covered = _cover(shrinker)
    return {size: float(covered[min(max(size - fewest, 0), len(covered) - 1)]) for size in sizes}


def _cover(shrinker: Shrinker) -> tuple[int, np.ndarray]:
    """How many tokens are always kept; and the share of new texts with them, and with every further token."""
    tokenizer, counts = shrinker.loaded.tokenizer, shrinker.token_counts
    shares = expected_shares(tokenizer, counts)
    always = set(tokenizer.convert_ids_to_tokens(sorted(required_tokens(tokenizer, counts))))
    ranked = [*(shares.get(token, 0.0) for token in always), *(s for t, s in shares.items() if t not in always)]
    return len(always), np.cumsum(ranked)[len(always) - 1 :]


def _embedding_widths(shrinker: Shrinker, setting: str | int) -> list[int | None]:
    config, family = shrinker.loaded.model.config, shrinker.loaded.family
    if setting == "full" or (setting == "auto" and embeddings.why_rank_is_fixed(family, config)):
        return [None]
    if isinstance(setting, int):
        embeddings.check_rank(setting, family, config)
        return [setting]
    return [None, *(config.hidden_size // divisor for divisor in WIDTH_DIVISORS)]


def _feed_forward_widths(shrinker: Shrinker, setting: str | int) -> list[int | None]:
    model, family = shrinker.loaded.model, shrinker.loaded.family
    if setting == "all" or (setting == "auto" and units.why_width_is_fixed(family)):
        return [None]
    if isinstance(setting, int):
        return [setting]
    full = units.count_units(model, family)
    return [None, *(full // divisor for divisor in UNIT_DIVISORS)]
