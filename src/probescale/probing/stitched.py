"""Probe subnetworks: how much the layers know when they stand alone, wired as they will be after the cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probescale.config import RunConfig
from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset, count_passes, format_subset
from probescale.probing.cache import Store
from probescale.probing.fitting import score_property
from probescale.probing.probe import drawn, pooling_of, rows_of
from probescale.probing.represent import Request, represent
from probescale.probing.scores import SubnetworkScores
from probescale.probing.subnetworks import ends_of
from probescale.tasks.task import Task

AT_ONCE = 256  # subnetworks in one pass: each has a file open
SPLITS = 3  # of the same examples into train and held-out rows; values are the mean
METRIC = "information"  # bits saved over knowing the shares alone: finer than accuracy, which is a count
POOLING = "mean"  # of texts: within few layers the first token has not gathered them yet; training teaches it to


@dataclass(frozen=True)
class _Found:
    value: float  # by the metric that decides
    accuracy: float
    draws: np.ndarray  # the value on resampled held-out rows


@dataclass
class Prober:
    """Probes subnetworks of one model for one task, and remembers what it found."""

    loaded: LoadedModel
    task: Task
    config: RunConfig
    found: dict[Subset, _Found] = field(default_factory=dict)
    passes: float = 0.0

    def score(self, subsets: Sequence[Subset]) -> dict[Subset, float]:
        """Sum over the task's probes, weighted as in Eq. 1."""
        new = sorted({subset for subset in subsets if subset not in self.found})
        for first in range(0, len(new), AT_ONCE):
            self._probe(new[first : first + AT_ONCE])
        return {subset: self.found[subset].value for subset in subsets}

    def _probe(self, subsets: list[Subset]) -> None:
        config, loaded = self.config, self.loaded
        probes = [prop for prop in config.task.probes if prop.weight != 0]
        weights = config.task.probe_weights()
        data = [drawn(self.task, prop, config.selection.sample, config.seed) for prop in probes]
        requests = [Request(part, pooling_of(prop, part, POOLING)) for part, prop in zip(data, probes, strict=True)]
        settings = config.probing.model_copy(update={"selectivity": False, "code_length": False})
        sites = ends_of(loaded, subsets)
        total, accuracy, resampled = np.zeros(len(subsets)), np.zeros(len(subsets)), np.zeros((len(subsets), 1))
        with Store.open(keep=False) as store:
            found = represent(
                loaded, requests, store, max_length=config.model.max_length, batch_tokens=config.probing.batch_tokens,
                subnetworks=subsets, title=f"running {len(subsets)} subnetworks",
            )  # fmt: skip
            for prop, request, features in zip(probes, requests, found, strict=True):
                for seed in range(config.seed, config.seed + SPLITS):
                    rows = rows_of(request, features, prop.name, config.probing.validation, seed)
                    scored = score_property(rows, features, sites, 1, settings, seed, prop.name, floors=False)
                    measures = [scored.sites[format_subset(subset)].measures for subset in subsets]
                    share = weights[prop.name] / SPLITS
                    total += share * np.array([one[METRIC].value for one in measures])
                    accuracy += share * np.array([one["accuracy"].value for one in measures])
                    resampled = resampled + share * np.nan_to_num([one[METRIC].drawn for one in measures])
        for number, subset in enumerate(subsets):
            self.found[subset] = _Found(float(total[number]), float(accuracy[number]), resampled[number])
        self.passes += count_passes(subsets, loaded.layers)

    def scores(self) -> SubnetworkScores:
        subsets = sorted(self.found, key=lambda subset: (len(subset), subset))
        return SubnetworkScores(
            subsets=tuple(subsets),
            values=tuple(self.found[s].value for s in subsets),
            accuracy=tuple(self.found[s].accuracy for s in subsets),
            draws=tuple(tuple(self.found[s].draws.round(5).tolist()) for s in subsets),
            metric=METRIC,
            examples=self.config.selection.sample,
            passes=round(self.passes, 3),
        )
