"""The scores of every probe and layer, and the relevance of each layer (Eq. 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from probescale.errors import UserError, did_you_mean
from probescale.models.parameters import Parameters
from probescale.models.subsets import Subset
from probescale.utils.files import Record

LARGEST = 1e9  # largest score, so that sums stay finite
MOST_LAYERS = 10_000

Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Contribution = Literal["absolute", "marginal"]
Relevance = tuple[float, ...]  # R_{l,T}, layer 1 first


class Curve(BaseModel):
    """One measure at every layer, layer 1 first."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    values: tuple[Score, ...]
    low: tuple[float, ...]  # 95 % interval over the held-out rows of one draw
    high: tuple[float, ...]
    spread: tuple[float, ...] | None = None  # standard deviation over draws of the data (probing.seeds)


class ProbeResult(BaseModel):
    """V_{p,l} of one property p, layer 1 first, and how it was measured."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    scores: tuple[Score, ...] = Field(min_length=1)
    weight: float = Field(ge=0, le=LARGEST)
    metric: str = "accuracy"  # which measure the scores are
    measures: dict[str, Curve] = Field(default_factory=dict)
    embeddings: dict[str, Score] | None = None  # the same measures before the first layer
    draws: tuple[tuple[Score, ...], ...] | None = None  # (draws, layers) the scores on resampled held-out rows
    floors: dict[str, float] = Field(default_factory=dict)  # accuracy of: majority, bag of words, embeddings
    bits: dict[str, float] = Field(default_factory=dict)  # that a next token costs: by token frequencies, by the model
    random_weights: Curve | None = None  # accuracy at the layers of the untrained architecture
    attention: Curve | None = None  # accuracy at the attention's output; the same for the next two
    feed_forward: Curve | None = None
    heads: tuple[tuple[float, ...], ...] | None = None
    pooling: str | None = None
    target: str = "class"
    spans: bool = False  # tags mark spans: f1 is by entity
    classes: int | None = None
    train: int | None = None
    validation: int | None = None
    seeds: int = 1
    penalties: tuple[float, ...] | None = None  # chosen per layer, in the first draw
    steps: tuple[int, ...] | None = None
    gaps: tuple[float, ...] | None = None  # nats by which the loss could still fall, estimated
    converged: tuple[bool, ...] | None = None


class SubnetworkScores(BaseModel):
    """Scores of probes at the last layer of subnetworks, each run as if it had been cut out."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    subsets: tuple[Subset, ...]
    values: tuple[Score, ...]  # of the metric; selection uses these
    accuracy: tuple[float, ...]
    draws: tuple[tuple[Score, ...], ...] = ()  # (subsets, draws) the values on resampled held-out rows
    metric: str
    examples: int
    passes: float  # cost, in passes of the examples through the full model


class Flow(BaseModel):
    """How much layers change the direction of states: means over all tokens. Row 0 is the embeddings."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    influence: tuple[float, ...]  # of every layer: 1 - cosine of its input and output (ShortGPT)
    angles: tuple[tuple[float, ...], ...]  # (L + 1, L + 1) angle between states, in half turns (Gromov et al.)
    texts: int


class Removals(Record):
    """Layers in the order in which they are taken out, always the one without which the task's loss is lowest."""

    before: float  # loss of the whole model on the calibration data
    rows: int  # calibration inputs: texts, or blocks of running text
    order: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()  # after each of them was taken out
    passes: float = 0.0  # cost, in passes of the calibration data through the full model

    def with_step(self, layer: int, loss: float, passes: float) -> Removals:
        """The same with one more layer taken out."""
        return Removals(
            before=self.before,
            rows=self.rows,
            order=(*self.order, layer),
            losses=(*self.losses, loss),
            passes=round(self.passes + passes, 3),
        )


class ProbeScores(Record):
    """All probes of one model and task. Saved as scores.json."""

    task: str
    layers: int = Field(ge=1)
    probes: dict[str, ProbeResult] = Field(min_length=1)
    contribution: Contribution = "absolute"
    parameters: Parameters | None = None  # of the model, so that a budget can be applied later
    flow: Flow | None = None
    subnetworks: SubnetworkScores | None = None
    removals: Removals | None = None
    random_weights: dict[str, float] | None = None  # proof that the baseline of this name is random
    weights_from: str = ""  # the measured figures that the weights were fitted to; empty: weights as given
    provenance: dict[str, Any] = Field(default_factory=dict)

    @computed_field
    @property
    def relevance(self) -> Relevance:
        """R_{l,T} of every layer, from its scores (absolute) or from what it adds to them (marginal)."""
        weights = {name: probe.weight for name, probe in self.probes.items()}
        if self.contribution == "absolute":
            return compute_relevance({name: probe.scores for name, probe in self.probes.items()}, weights)
        below = {name: (probe.embeddings or {}).get(probe.metric) for name, probe in self.probes.items()}
        return compute_relevance(
            {name: compute_gains(p.scores, below[name], name) for name, p in self.probes.items()}, weights
        )

    @property
    def embeddings_relevance(self) -> float | None:
        """Relevance of the embeddings; None unless every probe has a score there."""
        weighted = [(probe.weight, (probe.embeddings or {}).get(probe.metric)) for probe in self.probes.values()]
        known = [weight * score for weight, score in weighted if score is not None]
        return math.fsum(known) if len(known) == len(weighted) else None

    @property
    def relevance_draws(self) -> list[Relevance] | None:
        """The relevance in every bootstrap draw; None unless every probe with a weight has draws."""
        probes = {name: probe for name, probe in self.probes.items() if probe.weight}
        weights = {name: probe.weight for name, probe in probes.items()}
        draws = [probe.draws for probe in probes.values()]
        if self.contribution == "marginal" or any(draw is None for draw in draws):
            return None
        rows = zip(*(draw for draw in draws if draw is not None), strict=False)
        return [compute_relevance(dict(zip(probes, row, strict=True)), weights) for row in rows]

    def with_metric(self, metric: str | None = None, contribution: Contribution | None = None) -> ProbeScores:
        """The same probes with another measure as their score, or another way to credit a layer."""
        probes = dict(self.probes)
        for name, probe in probes.items() if metric else ():
            if metric not in probe.measures:
                raise UserError(
                    f'probe "{name}" has no {metric}',
                    field="--metric",
                    hint=f"it has: {', '.join(probe.measures) or 'only its scores'}",
                )
            other = {"scores": probe.measures[metric].values, "metric": metric, "draws": None}
            probes[name] = probe.model_copy(update=other)
        return self.model_copy(update={"probes": probes, "contribution": contribution or self.contribution})

    @property
    def weights_note(self) -> str:
        """A warning where the weights were fitted to figures; else empty."""
        if not self.weights_from:
            return ""
        return (
            f"The probes' weights were fitted to {self.weights_from}; figures on the same rows flatter layers that are "
            "chosen with them."
        )

    def with_weights(self, weights: Mapping[str, float], weights_from: str = "") -> ProbeScores:
        """The same scores under other weights w(p,T); probes that are not named get weight 0.

        `weights_from`: the measured figures that they were fitted to, if they were.
        """
        for name in weights:
            if name not in self.probes:
                raise UserError(
                    f'there is no probe "{name}".{did_you_mean(name, self.probes)}',
                    field="--weight",
                    hint=f"use one of: {', '.join(self.probes)}",
                )
        if not any(weights.values()):
            raise UserError("all weights are zero", field="--weight", hint="give at least one probe a weight above 0")
        probes = {n: p.model_copy(update={"weight": weights.get(n, 0.0)}) for n, p in self.probes.items()}
        return self.model_copy(update={"probes": probes, "weights_from": weights_from})


def compute_relevance(scores: Mapping[str, tuple[float, ...]], weights: Mapping[str, float]) -> Relevance:
    """Eq. 1: the weighted sum of all probes' scores, per layer.

    >>> compute_relevance({"qnli": (0.5, 1.0), "pos": (0.25, 0.0)}, {"qnli": 0.5, "pos": 0.5})
    (0.375, 0.5)
    """
    layers = len(next(iter(scores.values())))
    return tuple(math.fsum(weights[name] * scores[name][layer] for name in scores) for layer in range(layers))


def compute_gains(scores: tuple[float, ...], below: float | None, name: str = "") -> tuple[float, ...]:
    """What each layer adds to the score of the layer below it; layer 1 adds to the embeddings.

    >>> compute_gains((0.5, 0.75, 0.625), below=0.25)
    (0.25, 0.25, -0.125)
    """
    if below is None:
        raise UserError(
            f'probe "{name}" has no score of the embeddings, which marginal contribution needs',
            field="relevance.contribution",
            hint="use absolute, or scores from `probescale probe`",
        )
    return tuple(score - lower for score, lower in zip(scores, (below, *scores), strict=False))
