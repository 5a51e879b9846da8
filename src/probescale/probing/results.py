"""From the probes of one or several draws to one result per property."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probescale.probing.fitting import PropertyScores, SiteScores
from probescale.probing.scores import Curve, ProbeResult


def combine(
    draws: Sequence[PropertyScores], random: Sequence[PropertyScores], weight: float, metric: str, layers: int
) -> ProbeResult:
    """Means over the draws. The interval is that of one draw, on average; the spread is what draws differ by."""
    first = draws[0]
    stack = [f"layer-{layer:03d}" for layer in range(1, layers + 1)]
    measures = {name: _curve(draws, stack, name) for name in first.sites[stack[0]].measures}
    below = {name: _mean(draws, "embeddings", name) for name in first.sites["embeddings"].measures}
    last: list[SiteScores] = [first.sites[site] for site in stack]
    floors = {name: float(np.mean([draw.floors[name] for draw in draws])) for name in first.floors}
    return ProbeResult(
        scores=measures[metric].values,
        weight=weight,
        metric=metric,
        measures=measures,
        embeddings=below,
        draws=_drawn(draws, stack, metric),
        floors=floors | {"embeddings": below["accuracy"]},
        random_weights=_curve(random, stack, "accuracy") if random else None,
        attention=_parts(draws, "attention", layers),
        feed_forward=_parts(draws, "feed_forward", layers),
        heads=_heads(draws, layers),
        pooling=first.pooling,
        target=first.kind,
        spans=first.spans,
        classes=first.classes,
        train=first.train,
        validation=first.validation,
        seeds=len(draws),
        penalties=tuple(one.penalty for one in last),
        steps=tuple(one.steps for one in last),
        gaps=tuple(one.gap for one in last),
        converged=tuple(all(draw.sites[site].converged for draw in draws) for site in stack),
    )


def _mean(draws: Sequence[PropertyScores], site: str, name: str) -> float:
    return float(np.mean([draw.sites[site].measures[name].value for draw in draws]))


def _curve(draws: Sequence[PropertyScores], sites: Sequence[str], name: str) -> Curve:
    found = [[draw.sites[site].measures[name] for site in sites] for draw in draws]
    values = np.array([[one.value for one in draw] for draw in found])
    lows = np.array([[one.low for one in draw] for draw in found])
    highs = np.array([[one.high for one in draw] for draw in found])
    return Curve(
        values=tuple(values.mean(0).tolist()),
        low=tuple(lows.mean(0).tolist()),
        high=tuple(highs.mean(0).tolist()),
        spread=tuple(values.std(0, ddof=1).tolist()) if len(draws) > 1 else None,
    )


def _drawn(draws: Sequence[PropertyScores], sites: Sequence[str], name: str) -> tuple[tuple[float, ...], ...] | None:
    """(draws, layers): the same held-out rows in all layers; over several draws of the data, their mean."""
    found = np.array([[draw.sites[site].measures[name].drawn for site in sites] for draw in draws])
    rows = np.nan_to_num(found.mean(0).T).round(6)
    return tuple(tuple(row) for row in rows.tolist()) if rows.size else None


def _parts(draws: Sequence[PropertyScores], part: str, layers: int) -> Curve | None:
    sites = [f"{part}-{layer:03d}" for layer in range(1, layers + 1)]
    return _curve(draws, sites, "accuracy") if sites[0] in draws[0].sites else None


def _heads(draws: Sequence[PropertyScores], layers: int) -> tuple[tuple[float, ...], ...] | None:
    """Accuracy of every head, by layer."""
    names = [
        [site for site in draws[0].sites if site.startswith(f"heads-{layer:03d}.")] for layer in range(1, layers + 1)
    ]
    return tuple(tuple(_mean(draws, s, "accuracy") for s in sites) for sites in names) if names[0] else None
