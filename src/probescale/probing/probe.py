"""Probe every layer for every property of a task: Algorithm 1, CalculateRelevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probescale.config import ProbeConfig, ProbingConfig, RunConfig
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
        labelled, pooling = label_features(loaded, task.probe_data[prop.name], prop, config)
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
    """One pass over (a seeded sample of) the data. Also says which pooling was used."""
    most, length, batch = config.probing.max_examples, config.model.max_length, config.probing.batch_tokens
    title = f"representations: {prop.name}"
    if isinstance(data, TaggedSentences):
        inputs, tags, owners = word_inputs(loaded, _some_sentences(data, most, config.seed), length)
        return LabelledFeatures(represent(loaded, inputs, batch, title), tags, owners), "token"
    pooling = loaded.family.pooling if prop.pooling == "auto" else prop.pooling
    some = sample(data, most, config.seed)
    features = represent(loaded, sentence_inputs(loaded, some, pooling, length), batch, title)
    return LabelledFeatures(features, np.array(some.labels)), pooling


def score_layers(
    data: LabelledFeatures, name: str, weight: float, pooling: str, config: ProbingConfig, seed: int
) -> ProbeResult:
    """A probe per layer, all on the same split."""
    metric = METRICS["accuracy"]
    parts = split_parts(data, config.validation, seed)
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


def split_parts(data: LabelledFeatures, validation: float, seed: int) -> Parts:
    """Validation out of train, and the same share again out of what remains to judge penalties."""
    train, held_out = _split(np.arange(len(data.labels)), data, validation, seed)
    fit, judge = _split(train, data, validation, seed)
    return Parts(train, held_out, fit, judge)


def _split(rows: np.ndarray, data: LabelledFeatures, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if data.groups is None:
        first, second = split_rows(data.labels[rows].tolist(), share, seed)
        return rows[first], rows[second]
    groups = np.unique(data.groups[rows])
    _, second_groups = split_rows([0] * len(groups), share, seed)
    is_second = np.isin(data.groups[rows], groups[second_groups])
    return rows[~is_second], rows[is_second]


def _some_sentences(data: TaggedSentences, most_words: int, seed: int) -> TaggedSentences:
    """Sentences in seeded order until there are enough words."""
    order = np.random.default_rng(seed).permutation(len(data))
    words = np.cumsum([len(data.words[i]) for i in order])
    enough = int(np.searchsorted(words, most_words)) + 1
    return data.take(sorted(order[:enough].tolist()))
