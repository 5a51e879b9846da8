"""What strategies decide by: the relevance of the layers, and what else was measured for some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from probescale.errors import UserError
from probescale.models.subsets import Subset

if TYPE_CHECKING:
    from probescale.probing.scores import ProbeScores


@dataclass(frozen=True)
class Evidence:
    """Measurements of one model. The relevance is always known; the rest only where a strategy needs it."""

    relevance: Sequence[float]  # R_{l,T} of every layer (Eq. 1)
    embeddings_relevance: float | None = None  # relevance of the embeddings
    influence: Sequence[float] | None = None  # 1 - cos of a layer's input and output
    angles: Sequence[Sequence[float]] | None = None  # (L + 1, L + 1) between the states at two places
    subnetworks: Mapping[Subset, float] = field(default_factory=dict)  # what probes find at the end of these
    removals: Sequence[int] = ()  # layers in the order in which they are taken out with the least loss
    tournament: Sequence[Subset] = ()  # candidates that were trained for a short while, the best first
    seed: int = 0  # of random draws

    @property
    def layers(self) -> int:
        return len(self.relevance)

    @classmethod
    def from_scores(cls, scores: ProbeScores) -> Evidence:
        """The evidence that the scores of one task hold."""
        flow, subnetworks, seed = scores.flow, scores.subnetworks, scores.provenance.get("seed")
        return cls(
            relevance=scores.relevance,
            embeddings_relevance=scores.embeddings_relevance,
            influence=flow.influence if flow else None,
            angles=flow.angles if flow else None,
            subnetworks=dict(zip(subnetworks.subsets, subnetworks.values, strict=True)) if subnetworks else {},
            removals=scores.removals.order if scores.removals else (),
            seed=seed if isinstance(seed, int) and seed >= 0 else 0,
        )


def resample_evidence(scores: ProbeScores) -> list[Evidence]:
    """The evidence on resampled held-out rows, once for every draw in the scores."""
    evidence, relevance, subnetworks = Evidence.from_scores(scores), scores.relevance_draws, scores.subnetworks
    draws = [replace(evidence, relevance=row) for row in relevance or ()]
    if subnetworks and subnetworks.draws:
        values = list(zip(*subnetworks.draws, strict=True))  # (draws, subsets)
        draws = [
            replace(draw, subnetworks=dict(zip(subnetworks.subsets, row, strict=True)))
            for draw, row in zip(draws or [evidence] * len(values), values, strict=False)
        ]
    return draws


def combine_evidence(weighted: Sequence[tuple[Evidence, float]]) -> Evidence:
    """The weighted mean of several tasks' evidence about one model, to select one subnetwork for all of them."""
    total = sum(weight for _, weight in weighted)
    if not weighted or total <= 0:
        raise UserError("all task weights are zero", field="--task-weight", hint="at least one task has to count")
    tasks, weights = [evidence for evidence, _ in weighted], [weight / total for _, weight in weighted]
    if len({task.layers for task in tasks}) > 1:
        counts = ", ".join(str(task.layers) for task in tasks)
        raise UserError(
            f"the scores are of models with {counts} layers", field="SCORES", hint="give scores of one model"
        )

    def mean(values: Sequence[Sequence[float] | None]) -> list[float] | None:
        """Per position; None where a task has no values."""
        rows = [row for row in values if row is not None]
        return np.average(np.array(rows), axis=0, weights=weights).tolist() if len(rows) == len(tasks) else None

    in_all = set.intersection(*(set(task.subnetworks) for task in tasks))
    embeddings = mean([None if task.embeddings_relevance is None else [task.embeddings_relevance] for task in tasks])
    angles = mean([None if task.angles is None else np.ravel(task.angles).tolist() for task in tasks])
    positions = tasks[0].layers + 1
    relevance = mean([task.relevance for task in tasks])
    assert relevance is not None
    return Evidence(
        relevance=relevance,
        embeddings_relevance=embeddings[0] if embeddings else None,
        influence=mean([task.influence for task in tasks]),
        angles=np.reshape(angles, (positions, positions)).tolist() if angles else None,
        subnetworks={
            subset: sum(weight * task.subnetworks[subset] for task, weight in zip(tasks, weights, strict=True))
            for subset in sorted(in_all)
        },
        removals=tasks[0].removals if len(tasks) == 1 else (),
        seed=tasks[0].seed,
    )


def combine_scores(tasks: Sequence[ProbeScores], weights: Sequence[float]) -> tuple[Evidence, list[Evidence]]:
    """The evidence in the scores of one or several tasks of one model, and the same on resampled held-out rows."""
    models = {str(task.provenance["model_sha256"]) for task in tasks if task.provenance.get("model_sha256")}
    if len(models) > 1:
        raise UserError("the scores are of different models", field="SCORES", hint="give scores of one model")
    evidence = [(Evidence.from_scores(task), weight) for task, weight in zip(tasks, weights, strict=True)]
    draws = [[(draw, weight) for draw in resample_evidence(task)] for task, weight in zip(tasks, weights, strict=True)]
    return combine_evidence(evidence), [combine_evidence(draw) for draw in zip(*draws, strict=False)]
