"""Combine the probe scores of several draws of the data into one result per property."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probescale.probing.fitting import PropertyScores, SiteScores
from probescale.probing.scores import Curve, ProbeResult


def combine_draws(
    draws: Sequence[PropertyScores], random: Sequence[PropertyScores], weight: float, metric: str, layers: int
) -> ProbeResult:
    """Means over the draws. Intervals are averages over the draws; the spread is the deviation between draws."""
    first = draws[0]
    layer_sites = [f"layer-{layer:03d}" for layer in range(1, layers + 1)]
    measures = {name: _curve(draws, layer_sites, name) for name in first.sites[layer_sites[0]].measures}
    embeddings = {name: _mean(draws, "embeddings", name) for name in first.sites["embeddings"].measures}
    fits: list[SiteScores] = [first.sites[site] for site in layer_sites]
    baselines = {name: float(np.mean([draw.baselines[name] for draw in draws])) for name in first.baselines}
    return ProbeResult(
        scores=measures[metric].values,
        weight=weight,
        metric=metric,
        measures=measures,
        embeddings=embeddings,
        draws=_mean_draws(draws, layer_sites, metric),
        floors=baselines | {"embeddings": embeddings["accuracy"]},
        random_weights=_curve(random, layer_sites, "accuracy") if random else None,
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
        penalties=tuple(fit.penalty for fit in fits),
        steps=tuple(fit.steps for fit in fits),
        gaps=tuple(fit.gap for fit in fits),
        converged=tuple(all(draw.sites[site].converged for draw in draws) for site in layer_sites),
    )


def _mean(draws: Sequence[PropertyScores], site: str, name: str) -> float:
    return float(np.mean([draw.sites[site].measures[name].value for draw in draws]))


def _curve(draws: Sequence[PropertyScores], sites: Sequence[str], name: str) -> Curve:
    estimates = [[draw.sites[site].measures[name] for site in sites] for draw in draws]
    values = np.array([[estimate.value for estimate in draw] for draw in estimates])
    lows = np.array([[estimate.low for estimate in draw] for draw in estimates])
    highs = np.array([[estimate.high for estimate in draw] for draw in estimates])
    return Curve(
        values=tuple(values.mean(0).tolist()),
        low=tuple(lows.mean(0).tolist()),
        high=tuple(highs.mean(0).tolist()),
        spread=tuple(values.std(0, ddof=1).tolist()) if len(draws) > 1 else None,
    )


def _mean_draws(
    draws: Sequence[PropertyScores], sites: Sequence[str], name: str
) -> tuple[tuple[float, ...], ...] | None:
    """(bootstrap draws, layers) Scores on the same resampled rows in all layers, averaged over draws of the data."""
    scores = np.array([[draw.sites[site].measures[name].draws for site in sites] for draw in draws])
    rows = np.nan_to_num(scores.mean(0).T).round(6)
    return tuple(tuple(row) for row in rows.tolist()) if rows.size else None


def _parts(draws: Sequence[PropertyScores], part: str, layers: int) -> Curve | None:
    """Accuracy at the output of a part of every layer, where it was probed."""
    sites = [f"{part}-{layer:03d}" for layer in range(1, layers + 1)]
    return _curve(draws, sites, "accuracy") if sites[0] in draws[0].sites else None


def _heads(draws: Sequence[PropertyScores], layers: int) -> tuple[tuple[float, ...], ...] | None:
    """Accuracy of every head, by layer, where heads were probed."""
    names = [
        [site for site in draws[0].sites if site.startswith(f"heads-{layer:03d}.")] for layer in range(1, layers + 1)
    ]
    return tuple(tuple(_mean(draws, s, "accuracy") for s in sites) for sites in names) if names[0] else None
