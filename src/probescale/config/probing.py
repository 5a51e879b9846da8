"""`probing` and `relevance`: how layers are probed, and how scores become relevance."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from probescale.utils.sections import Int, Section, list_of_one

Granularity = Literal["layer", "sublayer", "head"]


class ProbingConfig(Section):
    """`probing`: how layers are probed."""

    validation: float = Field(default=0.2, gt=0, lt=1, description="Part of train on which probes are scored.")
    max_examples: Int = Field(
        default=5000,
        ge=20,
        le=10**9,
        description="Largest number of examples (for tagging: words) per probe, drawn with the seed.",
    )
    seeds: Int = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many times subsample and split are drawn; scores are the mean, and their spread is shown.",
    )
    probe: str = Field(
        default="linear",
        description="Kind of probe: linear, mlp (one hidden layer of 64), or another of `probescale list probes`.",
    )
    penalties: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(0.0001, 0.001, 0.01, 0.1, 1.0),
        min_length=1,
        description="L2 penalties tried per layer on an inner split, as scikit-learn's C: a smaller value "
        "is a stronger penalty.",
    )
    granularity: Annotated[tuple[Granularity, ...], BeforeValidator(list_of_one)] = Field(
        default=("layer",),
        min_length=1,
        description="Always layers; also sublayer (attention and feed-forward part) and head, from the same pass.",
    )
    selectivity: bool = Field(default=True, description="Also train every probe on a control task with random labels.")
    code_length: bool = Field(default=True, description="Also measure the online code length of the labels, in bits.")
    random_weights: bool = Field(
        default=False,
        description="Also probe the same architecture with random weights, as a baseline; costs a second pass.",
    )
    cache: bool = Field(default=True, description="Keep representations on disk for the next run.")
    batch_tokens: Int = Field(
        default=2048,
        ge=1,
        le=10**9,
        description="Tokens per forward batch, padding included. Changes speed, not results.",
    )


class RelevanceConfig(Section):
    """`relevance`: what Eq. 1 sums."""

    metric: Literal["accuracy", "f1", "selectivity", "compression", "information"] = Field(
        default="accuracy",
        description="The measure that Eq. 1 sums; the paper: accuracy (numbers: R2). f1 is entity F1 for spans.",
    )
    contribution: Literal["absolute", "marginal"] = Field(
        default="absolute",
        description="A layer counts with its score (absolute; the paper) or with what it adds to the layer below.",
    )
