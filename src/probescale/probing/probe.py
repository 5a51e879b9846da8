"""Probe every layer for every property of a task: Algorithm 1, CalculateRelevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probescale.config import ProbeConfig, ProbingConfig, RunConfig
from probescale.errors import UserError
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel
from probescale.probing.linear import Parts, fit_probes
from probescale.probing.represent import represent, sentence_inputs, word_inputs
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.tasks.data import Examples, TaggedSentences, sample, split_rows
from probescale.tasks.metrics import METRICS
from probescale.tasks.task import Task


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of every layer with their labels; rows of one group (a sentence's words) stay in one part."""

    features: np.ndarray  # (layers, rows, hidden)
    labels: np.ndarray  # (rows,)
    groups: np.ndarray | None = None  # (rows,)


def probe(loaded: LoadedModel, task: Task, config: RunConfig, provenance: dict[str, Any] | None = None) -> ProbeScores:
    """V_{p,l} for every property and layer, measured inside train."""
    weights = config.task.probe_weights()
    results = {}
    for prop in config.task.probes:
        labelled, pooling = label_features(loaded, drawn(task, prop, config), prop, config)
        results[prop.name] = score_layers(labelled, prop.name, weights[prop.name], pooling, config.probing, config.seed)
    return ProbeScores(
        task=task.name,
        layers=loaded.layers,
        probes=results,
        parameters=count_parameters(loaded.model, loaded.family),
        provenance=provenance or {},
    )


def label_features(
    loaded: LoadedModel, data: Examples | TaggedSentences, prop: ProbeConfig, config: RunConfig
) -> tuple[LabelledFeatures, str]:
    """One pass over the data. Also says which pooling was used."""
    length, batch = config.model.max_length, config.probing.batch_tokens
    title = f"representations: {prop.name}"
    if isinstance(data, TaggedSentences):
        inputs, tags, owners = word_inputs(loaded, data, length)
        check_parts(prop.name, tags, split_parts(tags, owners, config.probing.validation, config.seed), owners)
        return LabelledFeatures(represent(loaded, inputs, batch, title), tags, owners), "token"
    pooling = loaded.family.pooling if prop.pooling == "auto" else prop.pooling
    features = represent(loaded, sentence_inputs(loaded, data, pooling, length), batch, title)
    return LabelledFeatures(features, np.array(data.labels)), pooling


def score_layers(
    data: LabelledFeatures, name: str, weight: float, pooling: str, config: ProbingConfig, seed: int
) -> ProbeResult:
    """A probe per layer, all on the same split."""
    metric = METRICS["accuracy"]
    parts = check_parts(name, data.labels, split_parts(data.labels, data.groups, config.validation, seed))
    fits = fit_probes(data.features, data.labels, parts, config.penalties, metric, title=f"probes: {name}")
    commonest = np.bincount(data.labels[parts.train]).argmax()
    held_out = data.labels[parts.validation]
    return ProbeResult(
        scores=tuple(fit.score for fit in fits),
        weight=weight,
        metric=metric.__name__,
        pooling=pooling,
        classes=len(np.unique(data.labels)),
        majority=metric(held_out, np.full_like(held_out, commonest)),
        train=len(parts.train),
        validation=len(parts.validation),
        penalties=tuple(fit.penalty for fit in fits),
        converged=tuple(fit.converged for fit in fits),
    )


def drawn(task: Task, prop: ProbeConfig, config: RunConfig) -> Examples | TaggedSentences:
    """The part of a probe's data that the seed draws: at most so many examples, or sentences with so many words."""
    data, most = task.probe_data[prop.name], config.probing.max_examples
    if isinstance(data, Examples):
        return sample(data, most, config.seed)
    order = np.random.default_rng(config.seed).permutation(len(data))
    words = np.cumsum([len(data.words[i]) for i in order])
    enough = int(np.searchsorted(words, most)) + 1
    return data.take(sorted(order[:enough].tolist()))


def check_probes(task: Task, config: RunConfig) -> None:
    """Refuse, before any work, a probe whose data cannot be split into parts that teach and test something."""
    for prop in config.task.probes:
        data = drawn(task, prop, config)
        groups = None
        if isinstance(data, TaggedSentences):
            groups = np.repeat(np.arange(len(data)), [len(tags) for tags in data.tags])
        labels = np.array(data.labels if isinstance(data, Examples) else [tag for tags in data.tags for tag in tags])
        check_parts(prop.name, labels, split_parts(labels, groups, config.probing.validation, config.seed), groups)


def check_parts(name: str, labels: np.ndarray, parts: Parts | None, groups: np.ndarray | None = None) -> Parts:
    if parts is None or len(np.unique(labels[parts.fit])) < 2:
        size = f"{len(labels)} rows" if groups is None else f"{len(np.unique(groups))} different sentences"
        raise UserError(
            f'probe "{name}" has too little data ({size}) to be trained and tested',
            field="task.probes",
            hint="give it more examples of every class, or change probing.validation",
        )
    return parts


def split_parts(labels: np.ndarray, groups: np.ndarray | None, share: float, seed: int) -> Parts | None:
    """Validation out of train, and the same share again out of what remains to judge penalties.

    Rows of one group (a sentence's words) stay in one part. None when there is not enough for three parts.
    """
    first = _split(np.arange(len(labels)), labels, groups, share, seed)
    second = _split(first[0], labels, groups, share, seed) if first else None
    return Parts(first[0], first[1], second[0], second[1]) if first and second else None


def _split(
    rows: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    owners = rows if groups is None else groups[rows]
    units = np.unique(owners)
    if not 1 <= round(share * len(units)) < len(units):
        return None
    _, second = split_rows(labels[rows].tolist() if groups is None else [0] * len(units), share, seed)
    is_second = np.isin(owners, units[second])
    return rows[~is_second], rows[is_second]
