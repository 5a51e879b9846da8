"""The `study` section of a configuration: what a study varies, and where its cells run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from probescale.config import OneBudget
from probescale.utils.sections import Int, Section


class PublishedRow(Section):
    """An entry of `study.published`: a row of somebody's table, whose figures stand beside those of the study."""

    name: str = Field(min_length=1, description="Name of the row there.")
    method: str = Field(min_length=1, description="A strategy of the study, original, or a model of `compare`.")
    budget: OneBudget | None = Field(default=None, description="The study's budget that it belongs to.")
    values: dict[str, float] = Field(min_length=1, description="Its metric by task, in points, such as {sst2: 94.9}.")


class StudyConfig(Section):
    """`study`: what a study varies, and how its cells are run."""

    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Sources of the models. By default that of `model`."
    )
    tasks: tuple[Any, ...] = Field(
        default=(),
        description="Tasks, each written as in `task`: a built-in name, or a section. By default `task` alone.",
    )
    strategies: tuple[str, ...] = Field(
        min_length=1, description="Strategies that select the layers; see `probescale list strategies`."
    )
    budgets: tuple[OneBudget, ...] = Field(
        default=(),
        description="Budgets, each written as in selection.budget; k=3 is a number of layers. By default that of "
        "`selection`.",
    )
    seeds: tuple[Annotated[Int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(0,), min_length=1, description="Every cell runs with each of these seeds."
    )
    published: tuple[PublishedRow, ...] = Field(
        default=(), description="Rows of a published table, shown beside those of the study."
    )
    engine: Literal["local", "ray"] = Field(
        default="local", description="local: processes on this machine; ray: a Ray cluster (extra `ray`)."
    )
    workers: Int = Field(default=1, ge=1, le=10**4, description="Cells that run at the same time, with engine local.")
    address: str | None = Field(
        default=None, description="Address of the Ray cluster, such as auto. By default Ray starts on this machine."
    )
    cpus: Int | None = Field(
        default=None,
        ge=1,
        le=10**4,
        description="CPUs per cell. By default: with local, the cores are shared equally; with ray, 1.",
    )
    gpus: float = Field(default=0, ge=0, le=1000, description="GPUs per cell, with engine ray.")
    retries: Int = Field(
        default=2,
        ge=0,
        le=100,
        description="How many times a cell is restarted after its process died; not after an error.",
    )
