"""`selection` and `shrink`: the budget, the strategy, and which other parts are made smaller."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from probescale.config.task import Unlabelled
from probescale.utils.sections import Int, Section

OneBudget = str | Int | Annotated[float, Strict()]


class SelectionConfig(Section):
    """`selection`: strategy, budget and constraints."""

    strategy: str = Field(
        default="tried", description="Rule that chooses the layers; see `probescale list strategies`."
    )
    budget: OneBudget | tuple[OneBudget, ...] | None = Field(
        default=None,
        description="82M parameters, 23% of them, 5x fewer (embeddings and head counted), 12 GFLOPs, 150MB on disk, "
        "20ms on this machine; a list: all of them apply. Several models of different sizes: see ladder.",
    )
    ladder: Literal["auto"] | tuple[OneBudget, ...] | None = Field(
        default=None,
        description="Several sizes instead of a budget, such as [2x, 5x, 10x]: one run makes a model of each. `auto`: "
        "2x, 3x, 5x, 10x and 20x, as far as the model can be made so small.",
    )
    k: Int | None = Field(
        default=None, ge=1, description="Number of layers, instead of a budget; with a budget: at most this many."
    )
    keep: tuple[Int, ...] = Field(default=(), description="Layers that are always kept, such as [1].")
    gap: Int = Field(default=1, ge=1, le=10**4, description="Smallest distance between two kept layers; 1: any.")
    neighbours: bool = Field(default=False, description="Keep neighbouring layers only, whatever the strategy.")
    sample: Int = Field(
        default=1000,
        ge=20,
        le=10**9,
        description="Largest number of examples (for tagging: words) with which stitched strategies probe subnetworks.",
    )
    passes: float = Field(
        default=30,
        gt=0,
        description="Largest cost of stitched_search and exhaustive, in passes of the sample through the model.",
    )
    trial: Int | None = Field(
        default=None,
        ge=20,
        le=10**9,
        description="Texts per short training of the strategy tried; they repeat if there are fewer. By default all "
        "short trainings together read half of what the final training reads.",
    )
    length: Int = Field(default=128, ge=1, le=10**6, description="Tokens per text, for budgets in time or operations.")
    batch_size: Int = Field(default=1, ge=1, le=10**6, description="Texts per batch, for budgets in time.")

    @model_validator(mode="after")
    def _budget_or_k(self) -> SelectionConfig:
        given = self.budget not in (None, ()) or self.k is not None
        if self.ladder not in (None, ()) and given:
            raise ValueError("a ladder has a model of every size: leave budget and k out, or the ladder")
        if self.ladder in (None, ()) and not given:
            raise ValueError(
                "give a budget (82M, 23%, 5x, 12 GFLOPs, 150MB, 20ms), k (number of layers), both, or a ladder of sizes"
            )
        return self


def shrink_alone(value: Any) -> Any:  # noqa: ANN401 - raw YAML
    """`none` and `auto` as settings of every part."""
    words = {"none": {"vocabulary": "all", "rank": "full", "units": "all"}, "auto": {}}
    return words.get(value, value) if isinstance(value, str) else value


class ShrinkConfig(Section):
    """`shrink`: parts other than layers that are made smaller."""

    vocabulary: Literal["all", "task", "auto"] | Annotated[Int, Field(ge=1)] = Field(
        default="auto",
        description="Tokens that are kept: all; task: those of the task's texts, and what is needed to spell any "
        "other text; a number: at most this many, the most frequent ones; auto: chosen with the budget.",
    )
    rank: Literal["full", "auto"] | Annotated[Int, Field(ge=2)] = Field(
        default="auto",
        description="Width of the embeddings: full; a number: the width of a factorised matrix (BERT and RoBERTa, "
        "which become ELECTRA models); auto: chosen with the budget.",
    )
    units: Literal["all", "auto"] | Annotated[Int, Field(ge=1)] = Field(
        default="auto", description="Feed-forward width of every layer: all, a number, or auto."
    )
    corpus: Unlabelled | None = Field(
        default=None, description="Further texts that the model will read; their tokens count like the task's."
    )

    @property
    def asked(self) -> bool:
        return (self.vocabulary, self.rank, self.units) != ("all", "full", "all")
