"""Probe subnetworks: how much their last layer knows when they run as they will after the cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probescale.config import RunConfig
from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset, count_passes, format_subset
from probescale.probing.cache import Store
from probescale.probing.fitting import score_property
from probescale.probing.probe import label_rows, request_data
from probescale.probing.represent import PassSettings, represent
from probescale.probing.scores import SubnetworkScores
from probescale.tasks.task import Task

PER_PASS = 256  # subnetworks in one forward pass: each keeps a file open
SPLITS = 3  # of the same examples into training and held-out rows; values are the mean
METRIC = "information"  # bits saved compared with class frequencies alone: finer than accuracy
POOLING = "mean"  # for texts: after few layers the first token does not represent the text yet; training changes that


@dataclass(frozen=True)
class SubnetworkResult:
    """Scores of the probe at the end of one subnetwork."""

    value: float  # of METRIC
    accuracy: float
    draws: np.ndarray  # the value on resampled held-out rows


@dataclass
class SubnetworkProber:
    """Probes subnetworks of one model for one task, and remembers their results."""

    loaded: LoadedModel
    task: Task
    config: RunConfig
    results: dict[Subset, SubnetworkResult] = field(default_factory=dict)
    passes: float = 0.0

    def score(self, subsets: Sequence[Subset]) -> dict[Subset, float]:
        """The value of each subset: a sum over the task's probes, weighted as in Eq. 1."""
        new = sorted({subset for subset in subsets if subset not in self.results})
        for first in range(0, len(new), PER_PASS):
            self._probe(new[first : first + PER_PASS])
        return {subset: self.results[subset].value for subset in subsets}

    def _probe(self, subsets: list[Subset]) -> None:
        config, loaded = self.config, self.loaded
        properties = [prop for prop in config.task.probes if prop.weight != 0]
        weights = config.task.probe_weights()
        sample = config.selection.sample
        requests = [request_data(self.task, prop, sample, config.seed, POOLING) for prop in properties]
        settings = PassSettings(
            max_length=config.model.max_length,
            batch_tokens=config.probing.batch_tokens,
            subnetworks=subsets,
            title=f"running {len(subsets)} subnetworks",
        )
        probing = config.probing.model_copy(update={"selectivity": False, "code_length": False})
        sites = settings.list_sites(loaded)
        total, accuracy, resampled = np.zeros(len(subsets)), np.zeros(len(subsets)), np.zeros((len(subsets), 1))
        with Store.open(keep=False) as store:
            features = represent(loaded, requests, store, settings)
            for prop, request, states in zip(properties, requests, features, strict=True):
                for seed in range(config.seed, config.seed + SPLITS):
                    rows = label_rows(prop.name, request, states, probing.validation, seed)
                    scores = score_property(rows, states, sites, probing, baselines=False)
                    measures = [scores.sites[format_subset(subset)].measures for subset in subsets]
                    share = weights[prop.name] / SPLITS
                    total += share * np.array([of_subset[METRIC].value for of_subset in measures])
                    accuracy += share * np.array([of_subset["accuracy"].value for of_subset in measures])
                    resampled = resampled + share * np.nan_to_num([of_subset[METRIC].draws for of_subset in measures])
        for index, subset in enumerate(subsets):
            self.results[subset] = SubnetworkResult(float(total[index]), float(accuracy[index]), resampled[index])
        self.passes += count_passes(subsets, loaded.layers)

    def scores(self) -> SubnetworkScores:
        """All results so far, smallest subsets first."""
        subsets = sorted(self.results, key=lambda subset: (len(subset), subset))
        return SubnetworkScores(
            subsets=tuple(subsets),
            values=tuple(self.results[s].value for s in subsets),
            accuracy=tuple(self.results[s].accuracy for s in subsets),
            draws=tuple(tuple(self.results[s].draws.round(5).tolist()) for s in subsets),
            metric=METRIC,
            examples=self.config.selection.sample,
            passes=round(self.passes, 3),
        )
