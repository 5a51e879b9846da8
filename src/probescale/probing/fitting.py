"""Train and score the probes of one property at every site, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from probescale.config import ProbingConfig
from probescale.errors import lookup
from probescale.probing.cache import Features
from probescale.probing.codelength import online_code_length, uniform_code_length
from probescale.probing.controls import draw_control_labels, predict_bag_of_words, predict_majority
from probescale.probing.measures import BootstrapEstimate, HeldOutPredictions, Resampling, measure
from probescale.probing.parts import Parts
from probescale.probing.probes import PROBES, FittedProbe
from probescale.probing.probes.linear import standardise
from probescale.probing.sites import Site
from probescale.probing.targets import ProbeLabels
from probescale.tasks.spans import is_spans
from probescale.utils.progress import progress

MOST_MEMORY = 120e6  # bytes of features held at once, unless a single site has more


@dataclass(frozen=True)
class LabelledRows:
    """The labels of one property for every row of the features, and how the rows are split."""

    name: str  # of the property
    target: ProbeLabels
    texts: Sequence[tuple[str, ...]]  # the source of each row: a text, a pair of texts, or a word
    groups: np.ndarray  # (rows,) rows of one sentence have the same number
    parts: Parts
    pooling: str
    seed: int  # of the split, the control task and the bootstrap


@dataclass(frozen=True)
class SiteScores:
    """One probe: its measures on the held-out rows, and whether its training converged."""

    measures: dict[str, BootstrapEstimate]
    penalty: float
    steps: int
    gap: float
    converged: bool


@dataclass(frozen=True)
class PropertyScores:
    """All probes of a property on one draw of the data."""

    sites: dict[str, SiteScores]  # by site; heads are heads-003.007
    baselines: dict[str, float]  # accuracy without any layer
    pooling: str
    kind: str
    classes: int
    spans: bool
    train: int
    validation: int


def score_property(
    rows: LabelledRows, features: Features, sites: Sequence[Site], config: ProbingConfig, *, baselines: bool = True
) -> PropertyScores:
    """Scores of one probe per site, all on the same parts; with `baselines`, also of predictions from texts alone.

    Sites are probed in parallel, each on one BLAS thread: the matrix products are short, and handing them over between
    threads costs more than it gains. Memory limits the number of workers, so that it does not grow with the data.
    """
    order = rows.parts.order
    target = rows.target[order]
    texts = [rows.texts[row] for row in order]
    control = (
        draw_control_labels(target, ["\n".join(text) for text in texts], rows.seed) if config.selectivity else None
    )
    held_out = rows.parts.slices[2]
    resampling = Resampling(rows.groups[order][held_out], rows.seed)
    jobs = list(_list_jobs(sites))
    scorer = _SiteScorer(features, order, target, control, rows.parts.slices, config, resampling)
    largest = max(site.width for site in sites) * len(order) * 4
    workers = int(np.clip(MOST_MEMORY // largest, 1, os.cpu_count() or 1))
    scores: dict[str, SiteScores] = {}
    with (
        threadpool_limits(1),
        ThreadPoolExecutor(workers) as threads,
        progress(f"probes: {rows.name}", len(jobs)) as advance,
    ):
        futures = [threads.submit(scorer.score, job.site, job.columns) for job in jobs]
        try:
            for job, future in zip(jobs, futures, strict=True):
                scores[job.name] = future.result()
                advance(1)
        finally:
            for future in futures:  # after an interrupt, do not wait for sites that have not started
                future.cancel()
        text_only = _score_baselines(target, texts, rows.parts, resampling) if baselines else {}
    return PropertyScores(
        sites=scores,
        baselines=text_only,
        pooling=rows.pooling,
        kind=target.kind,
        classes=len(target.names),
        spans=is_spans(target.names),
        train=held_out.start,
        validation=len(target) - held_out.start,
    )


class _Job(NamedTuple):
    """One probe to train: the name of its scores, and the states that it reads."""

    name: str
    site: str
    columns: slice


def _list_jobs(sites: Sequence[Site]) -> Iterator[_Job]:
    """One job per site; a site of several heads has one job per head, on its share of the columns."""
    for site in sites:
        if site.part == "heads":
            size = site.width // site.heads
            for head in range(site.heads):
                yield _Job(f"{site.name}.{head + 1:03d}", site.name, slice(head * size, (head + 1) * size))
        else:
            yield _Job(site.name, site.name, slice(None))


@dataclass(frozen=True)
class _SiteScorer:
    """Trains and scores the probe of any site; all sites share labels, parts and bootstrap draws."""

    features: Features
    order: np.ndarray  # rows part by part; targets are in this order
    target: ProbeLabels
    control: ProbeLabels | None
    parts: tuple[slice, slice, slice]
    config: ProbingConfig
    resampling: Resampling

    def score(self, site: str, columns: slice) -> SiteScores:
        """The measures of a probe on these columns of a site's states."""
        rows, target = self.features.load(site, self.order, columns), self.target
        _, tuning, held_out = self.parts
        train = slice(0, tuning.stop)
        standardise(rows, train)
        probe, retrain = _train(rows, target, self.parts, self.config)
        logits = probe(rows[held_out])
        truth = target[held_out]
        prior = target[train].prior_logits(len(truth))
        if target.kind == "number":
            before, after = ((truth.values - truth.predict(each)) ** 2 for each in (prior, logits))
            saved = (before - after).reshape(len(truth), -1).sum(1)
        else:
            saved = truth.surprisal(prior, tuning.stop) - truth.surprisal(logits, tuning.stop)
        predictions = HeldOutPredictions(truth, target.predict(logits), saved, self._predict_control(rows))
        measures = measure(predictions, self.resampling)
        if self.config.code_length and target.kind != "number":
            # Only the sender knows the penalty: transmitting it costs log2 of the number of penalties.
            bits = online_code_length(retrain, rows[train], target[train]) + float(np.log2(len(self.config.penalties)))
            measures["code_length"] = BootstrapEstimate(bits, bits, bits)
            ratio = uniform_code_length(target[train]) / bits
            measures["compression"] = BootstrapEstimate(ratio, ratio, ratio)
        return SiteScores(measures, probe.penalty, probe.steps, probe.gap, probe.converged)

    def _predict_control(self, rows: np.ndarray) -> tuple[ProbeLabels, np.ndarray] | None:
        """Held-out labels of the control task, and a probe's predictions of them."""
        if self.control is None:
            return None
        probe, _ = _train(rows, self.control, self.parts, self.config)
        held_out = self.parts[2]
        return self.control[held_out], self.control.predict(probe(rows[held_out]))


def _train(
    rows: np.ndarray, target: ProbeLabels, parts: tuple[slice, slice, slice], config: ProbingConfig
) -> tuple[FittedProbe, Callable[[np.ndarray, ProbeLabels], FittedProbe]]:
    """The probe with the best penalty on the tuning rows; and a function that trains it roughly on fewer rows."""
    probe = lookup(PROBES, config.probe, field="probing.probe")()
    fit, tuning, _ = parts
    train = slice(0, tuning.stop)
    best = probe.fit_path(rows[fit], target[fit], config.penalties, (rows[tuning], target[tuning]))
    trained = probe.fit(rows[train], target[train], best.penalty, best)
    return trained, lambda features, labels: probe.fit(features, labels, best.penalty, rough=True)


def _score_baselines(
    target: ProbeLabels, texts: Sequence[tuple[str, ...]], parts: Parts, resampling: Resampling
) -> dict[str, float]:
    """Accuracy (for numbers: R2) of predictions that use no state of the model."""
    held_out = parts.slices[2]
    predictions = {
        "majority": predict_majority(target[: held_out.start], target[held_out]),
        "bag of words": predict_bag_of_words(texts, target, parts.slices),
    }
    nothing_saved = np.zeros(len(target[held_out]))
    return {
        name: measure(HeldOutPredictions(target[held_out], predicted, nothing_saved), resampling)["accuracy"].value
        for name, predicted in predictions.items()
    }
