"""The probes of one property at every site, side by side, and what each of them shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from probescale.config import ProbingConfig
from probescale.errors import lookup
from probescale.probing.cache import Features
from probescale.probing.codelength import online_code_length, uniform_code_length
from probescale.probing.controls import bag_of_words, control_target, majority
from probescale.probing.measures import BootstrapEstimate, HeldOutPredictions, Resampling, measure
from probescale.probing.parts import Parts
from probescale.probing.probes import PROBES, FittedProbe
from probescale.probing.probes.linear import standardise
from probescale.probing.sites import Site
from probescale.probing.targets import ProbeLabels
from probescale.tasks.spans import is_spans
from probescale.utils.progress import progress

MOST_MEMORY = 120e6  # bytes of features held at once, unless one site alone has more


@dataclass(frozen=True)
class Rows:
    """What is asked of the features: labels, where they come from, which part they are in."""

    target: ProbeLabels
    texts: Sequence[tuple[str, ...]]  # what each row was read from: a text, two texts, or a word
    groups: np.ndarray  # (rows,) rows of one sentence have the same number
    parts: Parts
    pooling: str


@dataclass(frozen=True)
class SiteScores:
    """One probe: its measures on the held-out rows, and how its training ended."""

    measures: dict[str, BootstrapEstimate]
    penalty: float
    steps: int
    gap: float
    converged: bool


@dataclass(frozen=True)
class PropertyScores:
    """All probes of a property on one draw of the data."""

    sites: dict[str, SiteScores]  # by site; heads are heads-003.07
    floors: dict[str, float]  # accuracy without any layer
    pooling: str
    kind: str
    classes: int
    spans: bool
    train: int
    validation: int


def score_property(
    rows: Rows,
    features: Features,
    sites: Sequence[Site],
    heads: int,
    config: ProbingConfig,
    seed: int,
    name: str,
    *,
    floors: bool = True,
) -> PropertyScores:
    """A probe per site, all on the same parts; and what is known without any layer, unless nobody asks for it.

    Sites run side by side, each on one BLAS thread: many short matrix products cost far more in hand-over between
    threads than they gain. How many at once is limited by memory, so that it does not grow with the data.
    """
    order = rows.parts.order
    target = rows.target[order]
    texts = [rows.texts[row] for row in order]
    control = control_target(target, ["\n".join(text) for text in texts], seed) if config.selectivity else None
    held_out = rows.parts.slices[2]
    resampling = Resampling(rows.groups[order][held_out], seed)
    jobs = list(_jobs(sites, heads))
    run = partial(_score_site, features, order, target, control, rows.parts.slices, config, resampling)
    largest = max(site.width for site in sites) * len(order) * 4
    workers = int(np.clip(MOST_MEMORY // largest, 1, os.cpu_count() or 1))
    found: dict[str, SiteScores] = {}
    with (
        threadpool_limits(1),
        ThreadPoolExecutor(workers) as threads,
        progress(f"probes: {name}", len(jobs)) as advance,
    ):
        futures = [threads.submit(run, site, columns) for _, site, columns in jobs]
        try:
            for (label, _, _), future in zip(jobs, futures, strict=True):
                found[label] = future.result()
                advance(1)
        finally:
            for future in futures:  # who stops does not wait for sites that have not begun
                future.cancel()
        known = _floors(target, texts, rows.parts, resampling) if floors else {}
    return PropertyScores(
        sites=found,
        floors=known,
        pooling=rows.pooling,
        kind=target.kind,
        classes=len(target.names),
        spans=is_spans(target.names),
        train=held_out.start,
        validation=len(target) - held_out.start,
    )


def _jobs(sites: Sequence[Site], heads: int) -> Iterator[tuple[str, str, slice]]:
    """(label, site, columns): a head is a part of the columns."""
    for site in sites:
        if site.part == "heads":
            size = site.width // heads
            for head in range(heads):
                yield f"{site.name}.{head + 1:03d}", site.name, slice(head * size, (head + 1) * size)
        else:
            yield site.name, site.name, slice(None)


def _score_site(
    features: Features,
    order: np.ndarray,
    target: ProbeLabels,
    control: ProbeLabels | None,
    parts: tuple[slice, slice, slice],
    config: ProbingConfig,
    resampling: Resampling,
    site: str,
    columns: slice,
) -> SiteScores:
    rows = features.load(site, order, columns)
    _, judge, held_out = parts
    train = slice(0, judge.stop)
    standardise(rows, train)
    probe, again = _train(rows, target, parts, config)
    logits = probe(rows[held_out])
    truth = target[held_out]
    prior = target[train].prior(len(truth))
    if target.kind == "number":
        saved = (truth.values - prior[:, 0]) ** 2 - (truth.values - logits[:, 0]) ** 2
    else:
        saved = truth.surprise(prior, judge.stop) - truth.surprise(logits, judge.stop)
    held = None
    if control is not None:
        other, _ = _train(rows, control, parts, config)
        held = (control[held_out], control.predicted(other(rows[held_out])))
    found = measure(HeldOutPredictions(truth, target.predicted(logits), saved, held), resampling)
    if config.code_length and target.kind != "number":
        # The penalty is known to the sender alone: naming it costs log2 of how many there are.
        bits = online_code_length(again, rows[train], target[train]) + float(np.log2(len(config.penalties)))
        found["code_length"] = BootstrapEstimate(bits, bits, bits)
        ratio = uniform_code_length(target[train]) / bits
        found["compression"] = BootstrapEstimate(ratio, ratio, ratio)
    return SiteScores(found, probe.penalty, probe.steps, probe.gap, probe.converged)


def _train(
    rows: np.ndarray, target: ProbeLabels, parts: tuple[slice, slice, slice], config: ProbingConfig
) -> tuple[FittedProbe, Callable[[np.ndarray, ProbeLabels], FittedProbe]]:
    """The probe with the penalty that the judge rows chose; and a function that trains it roughly on fewer rows."""
    probe = lookup(PROBES, config.probe, field="probing.probe")()
    fit, judge, _ = parts
    train = slice(0, judge.stop)
    best = probe.fit_path(rows[fit], target[fit], config.penalties, (rows[judge], target[judge]))
    trained = probe.fit(rows[train], target[train], best.penalty, best)
    return trained, lambda some, labels: probe.fit(some, labels, best.penalty, rough=True)


def _floors(
    target: ProbeLabels, texts: Sequence[tuple[str, ...]], parts: Parts, resampling: Resampling
) -> dict[str, float]:
    """Accuracy (of numbers: R2) of answering without any state of the model."""
    held_out = parts.slices[2]
    answers = {
        "majority": majority(target[: held_out.start], target[held_out]),
        "bag of words": bag_of_words(texts, target, parts.slices),
    }
    nothing = np.zeros(len(target[held_out]))
    return {
        name: measure(HeldOutPredictions(target[held_out], guess, nothing), resampling)["accuracy"].value
        for name, guess in answers.items()
    }
