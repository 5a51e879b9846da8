"""What strategies decide by. Only the relevance is always there; the rest is measured where a strategy asks for it."""

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
    relevance: Sequence[float]  # R_{l,T} of every layer (Eq. 1)
    below: float | None = None  # relevance of the embeddings
    influence: Sequence[float] | None = None  # 1 - cos of a layer's input and output
    angles: Sequence[Sequence[float]] | None = None  # (L + 1, L + 1) between the states at two places
    subnetworks: Mapping[Subset, float] = field(default_factory=dict)  # what probes find at the end of these
    trials: Mapping[Subset, float] = field(default_factory=dict)  # loss after a short training
    seed: int = 0  # of random draws

    @property
    def layers(self) -> int:
        return len(self.relevance)


def evidence_of(scores: ProbeScores) -> Evidence:
    flow, probed, seed = scores.flow, scores.subnetworks, scores.provenance.get("seed")
    return Evidence(
        relevance=scores.relevance,
        below=scores.below,
        influence=flow.influence if flow else None,
        angles=flow.angles if flow else None,
        subnetworks=dict(zip(probed.subsets, probed.values, strict=True)) if probed else {},
        seed=seed if isinstance(seed, int) and seed >= 0 else 0,
    )


def resampled(scores: ProbeScores) -> list[Evidence]:
    """The evidence as it would look on other held-out rows: one for every draw that the scores carry."""
    seen, layers, probed = evidence_of(scores), scores.relevance_draws, scores.subnetworks
    found: list[Evidence] = []
    if layers:
        found = [replace(seen, relevance=row) for row in layers]
    if probed and probed.draws:
        columns = list(zip(*probed.draws, strict=True))
        found = found or [seen] * len(columns)
        found = [
            replace(one, subnetworks=dict(zip(probed.subsets, column, strict=True)))
            for one, column in zip(found, columns, strict=False)
        ]
    return found


def combined(several: Sequence[tuple[Evidence, float]]) -> Evidence:
    """One subnetwork for several tasks: their evidence about the same model, added up with the tasks' weights."""
    total = sum(weight for _, weight in several)
    if not several or total <= 0:
        raise UserError("all task weights are zero", field="--task-weight", hint="at least one task has to count")
    parts = [(evidence, weight / total) for evidence, weight in several]
    if len({evidence.layers for evidence, _ in parts}) > 1:
        counts = ", ".join(str(evidence.layers) for evidence, _ in parts)
        raise UserError(
            f"the scores are of models with {counts} layers", field="SCORES", hint="give scores of one model"
        )

    def mean(values: Sequence[Sequence[float] | None]) -> list[float] | None:
        rows = [row for row in values if row is not None]
        weights = [weight for _, weight in parts]
        return np.average(np.array(rows), axis=0, weights=weights).tolist() if len(rows) == len(parts) else None

    shared = set.intersection(*(set(evidence.subnetworks) for evidence, _ in parts))
    below = mean([None if e.below is None else [e.below] for e, _ in parts])
    flat = mean([None if e.angles is None else np.ravel(e.angles).tolist() for e, _ in parts])
    places = parts[0][0].layers + 1
    relevance = mean([e.relevance for e, _ in parts])
    assert relevance is not None
    return Evidence(
        relevance=relevance,
        below=below[0] if below else None,
        influence=mean([e.influence for e, _ in parts]),
        angles=np.reshape(flat, (places, places)).tolist() if flat else None,
        subnetworks={s: sum(w * e.subnetworks[s] for e, w in parts) for s in sorted(shared)},
        seed=parts[0][0].seed,
    )


def together(tasks: Sequence[ProbeScores], weights: Sequence[float]) -> tuple[Evidence, list[Evidence]]:
    """What the scores of one or several tasks say of their model, and what they say on resampled rows."""
    models = {str(task.provenance["model_sha256"]) for task in tasks if task.provenance.get("model_sha256")}
    if len(models) > 1:
        raise UserError("the scores are of different models", field="SCORES", hint="give scores of one model")
    draws = [[(draw, weight) for draw in resampled(task)] for task, weight in zip(tasks, weights, strict=True)]
    seen = [(evidence_of(task), weight) for task, weight in zip(tasks, weights, strict=True)]
    return combined(seen), [combined(several) for several in zip(*draws, strict=False)]
