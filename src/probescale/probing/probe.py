"""Probe every layer for every property of a task: Algorithm 1, CalculateRelevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probescale.config import ProbeConfig, RunConfig
from probescale.errors import UserError
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel
from probescale.probing.cache import Features, Store
from probescale.probing.controls import with_random_weights
from probescale.probing.fitting import LabelledRows, PropertyScores, score_property
from probescale.probing.lens import probe_next_token
from probescale.probing.parts import check_parts, split_parts
from probescale.probing.represent import PassSettings, Request, represent
from probescale.probing.results import combine_draws
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.probing.sites import list_sites
from probescale.probing.targets import ProbeLabels
from probescale.tasks.data import Data
from probescale.tasks.documents import Documents
from probescale.tasks.sampling import sample_units
from probescale.tasks.task import Task


def probe(loaded: LoadedModel, task: Task, config: RunConfig, provenance: dict[str, Any] | None = None) -> ProbeScores:
    """Scores V_{p,l} for every property p and layer l, measured inside the training set."""
    random, proof = with_random_weights(loaded, config.seed) if config.probing.random_weights else (None, None)
    lenses = {prop.name: _look_ahead(loaded, random, task, config, prop) for prop in next_token_probes(task, config)}
    properties = labelled_probes(task, config)
    scores: dict[str, list[PropertyScores]] = {prop.name: [] for prop in properties}
    random_scores: dict[str, list[PropertyScores]] = {prop.name: [] for prop in properties}
    with Store.open(keep=config.probing.cache) as store:
        prober = _ModelProber(loaded, task, config, store)
        random_prober = _ModelProber(random, task, config, store, random_weights=True) if random else None
        for seed in range(config.seed, config.seed + config.probing.seeds) if properties else ():
            for name, drawn in prober.score(seed).items():
                scores[name].append(drawn)
            for name, drawn in random_prober.score(seed).items() if random_prober else ():
                random_scores[name].append(drawn)
    weights, metric = config.task.probe_weights(), config.relevance.metric
    return ProbeScores(
        task=task.name,
        layers=loaded.layers,
        probes=lenses
        | {
            name: combine_draws(draws, random_scores[name], weights[name], metric, loaded.layers)
            for name, draws in scores.items()
        },
        contribution=config.relevance.contribution,
        parameters=count_parameters(loaded.model, loaded.family),
        random_weights=proof and {"matrices": proof.matrices, "largest_correlation": proof.largest_correlation},
        provenance=provenance or {},
    )


def next_token_probes(task: Task, config: RunConfig) -> list[ProbeConfig]:
    """Probes of a generative task without data of their own: their property is the next token."""
    own = isinstance(task.train, Documents)
    return [prop for prop in config.task.probes if own and prop.data is None and prop.property is None]


def labelled_probes(task: Task, config: RunConfig) -> list[ProbeConfig]:
    """All other probes: their data have labels."""
    ahead = next_token_probes(task, config)
    return [prop for prop in config.task.probes if prop not in ahead]


def _look_ahead(
    loaded: LoadedModel, random: LoadedModel | None, task: Task, config: RunConfig, prop: ProbeConfig
) -> ProbeResult:
    """What layers know of the next token; beside it, what those of a model with random weights know."""
    assert isinstance(task.train, Documents)
    options = {"weight": config.task.probe_weights()[prop.name], "length": config.model.max_length, "seed": config.seed}
    options["metric"] = "accuracy" if config.relevance.metric == "accuracy" else "information"
    found = probe_next_token(loaded, task.train, **options)
    if random is None:
        return found
    return found.model_copy(
        update={"random_weights": probe_next_token(random, task.train, **options).measures["accuracy"]}
    )


@dataclass(frozen=True)
class _ModelProber:
    """Probes one model for all properties of a task. A model with random weights is probed at its layers only."""

    loaded: LoadedModel
    task: Task
    config: RunConfig
    store: Store
    random_weights: bool = False

    def score(self, seed: int) -> dict[str, PropertyScores]:
        """Scores of every property on the data that the seed draws."""
        probing, properties = self.config.probing, labelled_probes(self.task, self.config)
        if self.random_weights:
            reduced = {"selectivity": False, "code_length": False, "granularity": ("layer",)}
            probing = probing.model_copy(update=reduced)
        settings = PassSettings(
            max_length=self.config.model.max_length,
            batch_tokens=probing.batch_tokens,
            granularity=probing.granularity,
            title="representations" + (": random weights" if self.random_weights else ""),
        )
        default = self.loaded.usual_pooling
        requests = [request_data(self.task, prop, probing.max_examples, seed, default) for prop in properties]
        features = represent(self.loaded, requests, self.store, settings)
        sites = list_sites(self.loaded, probing.granularity)
        return {
            prop.name: score_property(
                label_rows(prop.name, request, states, probing.validation, seed),
                states,
                sites,
                probing,
                baselines=not self.random_weights,  # text-only baselines do not depend on the weights
            )
            for prop, request, states in zip(properties, requests, features, strict=True)
        }


def request_data(task: Task, prop: ProbeConfig, most: int, seed: int, default_pooling: str) -> Request:
    """A request for a sample of a probe's data. With pooling "auto", words use their first token, texts the default."""
    data = sample_probe_data(task, prop, most, seed)
    automatic = "token" if data.per_word else default_pooling
    return Request(data, automatic if prop.pooling == "auto" else prop.pooling)


def sample_probe_data(task: Task, prop: ProbeConfig, most: int, seed: int) -> Data:
    """At most `most` examples (or sentences with about `most` words) of a probe's data, drawn with the seed."""
    return sample_units(task.probe_data[prop.name], most, seed)


def label_rows(name: str, request: Request, features: Features, validation: float, seed: int) -> LabelledRows:
    """The labels, source texts and split of every row of the features."""
    data = request.data
    target, groups = read_labels(data, features.inputs, features.words)
    texts = data.texts_at(features.inputs, features.words)
    parts = check_parts(name, target, split_parts(target, groups, validation, seed), groups)
    groups = groups if groups is not None else np.arange(len(target))
    return LabelledRows(name, target, texts, groups, parts, request.pooling, seed)


def read_labels(data: Data, inputs: np.ndarray, words: np.ndarray) -> tuple[ProbeLabels, np.ndarray | None]:
    """The labels of these inputs or words; for words, also the input that each belongs to."""
    return ProbeLabels(data.target, data.values_at(inputs, words), data.names), inputs if data.per_word else None


def check_probes(task: Task, config: RunConfig) -> None:
    """UserError, before any work, for a probe whose data cannot be split or whose metric is not defined."""
    for number, prop in enumerate(config.task.probes):
        if prop in next_token_probes(task, config):
            continue
        data = sample_probe_data(task, prop, config.probing.max_examples, config.seed)
        target, groups = read_labels(data, *data.units)
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
