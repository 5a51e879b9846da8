"""Probe every layer for every property of a task: Algorithm 1, CalculateRelevance."""

from __future__ import annotations

from typing import Any

import numpy as np

from probescale.config import ProbeConfig, RunConfig
from probescale.errors import UserError
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel
from probescale.probing.cache import Features, Store
from probescale.probing.controls import RandomnessProof, with_random_weights
from probescale.probing.fitting import PropertyScores, Rows, score_property
from probescale.probing.parts import check_parts, split_parts
from probescale.probing.represent import Request, represent
from probescale.probing.results import combine
from probescale.probing.scores import ProbeScores
from probescale.probing.sites import sites_of
from probescale.probing.targets import ProbeLabels
from probescale.tasks.data import Data
from probescale.tasks.sampling import sample_units
from probescale.tasks.task import Task


def probe(loaded: LoadedModel, task: Task, config: RunConfig, provenance: dict[str, Any] | None = None) -> ProbeScores:
    """V_{p,l} for every property and layer, measured inside train."""
    random, proof = _random_model(loaded, config)
    found: dict[str, list[PropertyScores]] = {prop.name: [] for prop in config.task.probes}
    floors: dict[str, list[PropertyScores]] = {prop.name: [] for prop in config.task.probes}
    with Store.open(keep=config.probing.cache) as store:
        for seed in range(config.seed, config.seed + config.probing.seeds):
            for name, scores in _probe_once(loaded, task, config, store, seed).items():
                found[name].append(scores)
            if random is not None:
                for name, scores in _probe_once(random, task, config, store, seed, floor=True).items():
                    floors[name].append(scores)
    weights = config.task.probe_weights()
    results = {
        name: combine(found[name], floors[name], weights[name], config.relevance.metric, loaded.layers)
        for name in found
    }
    return ProbeScores(
        task=task.name,
        layers=loaded.layers,
        probes=results,
        contribution=config.relevance.contribution,
        parameters=count_parameters(loaded.model, loaded.family),
        random_weights=proof and {"matrices": proof.matrices, "largest_correlation": proof.largest_correlation},
        provenance=provenance or {},
    )


def _random_model(loaded: LoadedModel, config: RunConfig) -> tuple[LoadedModel | None, RandomnessProof | None]:
    return with_random_weights(loaded, config.seed) if config.probing.random_weights else (None, None)


def _probe_once(
    loaded: LoadedModel, task: Task, config: RunConfig, store: Store, seed: int, *, floor: bool = False
) -> dict[str, PropertyScores]:
    """All properties on one draw of the data. A floor is measured at the layers only, without controls."""
    probing = config.probing
    if floor:
        plain = {"selectivity": False, "code_length": False, "granularity": ("layer",)}
        probing = probing.model_copy(update=plain)
    properties = config.task.probes
    data = [drawn(task, prop, probing.max_examples, seed) for prop in properties]
    usual = loaded.family.pooling
    requests = [Request(part, pooling_of(prop, part, usual)) for part, prop in zip(data, properties, strict=True)]
    features = represent(
        loaded,
        requests,
        store,
        max_length=config.model.max_length,
        batch_tokens=probing.batch_tokens,
        granularity=probing.granularity,
        title="representations" + (": random weights" if floor else ""),
    )
    sites = sites_of(loaded, probing.granularity)
    heads = loaded.model.config.num_attention_heads
    return {
        prop.name: score_property(
            rows_of(request, found, prop.name, probing.validation, seed),
            found,
            sites,
            heads,
            probing,
            seed,
            prop.name,
            floors=not floor,  # what texts alone tell is the same with any weights
        )
        for prop, request, found in zip(properties, requests, features, strict=True)
    }


def pooling_of(prop: ProbeConfig, data: Data, usual: str) -> str:
    """As the probe says; left to us, the usual one for texts, and a word's first piece for words."""
    if prop.pooling != "auto":
        return prop.pooling
    return "token" if data.per_word else usual


def rows_of(request: Request, features: Features, name: str, validation: float, seed: int) -> Rows:
    """Labels of the rows, what they were read from, and which part each belongs to."""
    data = request.data
    target, groups = target_of(data, features.inputs, features.words)
    texts = data.texts_at(features.inputs, features.words)
    parts = check_parts(name, target, split_parts(target, groups, validation, seed), groups)
    return Rows(target, texts, groups if groups is not None else np.arange(len(target)), parts, request.pooling)


def target_of(data: Data, inputs: np.ndarray, words: np.ndarray) -> tuple[ProbeLabels, np.ndarray | None]:
    """The labels of these units; and which input each belongs to, where an input has several."""
    return ProbeLabels(data.target, data.values_at(inputs, words), data.names), inputs if data.per_word else None


def drawn(task: Task, prop: ProbeConfig, most: int, seed: int) -> Data:
    """The part of a probe's data that the seed draws: at most so many examples, or sentences with so many words."""
    return sample_units(task.probe_data[prop.name], most, seed)


def check_probes(task: Task, config: RunConfig) -> None:
    """Refuse, before any work, a probe whose data cannot be split, or whose metric is not defined for its target."""
    for number, prop in enumerate(config.task.probes):
        data = drawn(task, prop, config.probing.max_examples, config.seed)
        target, groups = target_of(data, *data.units)
        check_parts(prop.name, target, split_parts(target, groups, config.probing.validation, config.seed), groups)
        _check_metric(target, number, config)


def _check_metric(target: ProbeLabels, number: int, config: RunConfig) -> None:
    metric, probing = config.relevance.metric, config.probing
    if target.kind == "number" and metric in ("f1", "compression"):
        raise UserError(
            f"{metric} is not defined for probe {number}, which predicts a number",
            field="relevance.metric",
            hint="use accuracy (then R2), information or selectivity",
        )
    for name, needs in (("selectivity", "selectivity"), ("compression", "code_length")):
        if metric == name and not getattr(probing, needs):
            raise UserError(
                f"{metric} needs probing.{needs}", field="relevance.metric", hint=f"set probing.{needs}: true"
            )
