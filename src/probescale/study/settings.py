"""What a study varies, and where its cells run: the `study` section beside the settings of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from probescale.config import Int, OneBudget, Section


class StudyConfig(Section):
    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Sources of the models; left out: the one of `model`."
    )
    tasks: tuple[Any, ...] = Field(
        default=(), description="Each as `task` has it: a built-in name, or a section. Left out: the one of `task`."
    )
    strategies: tuple[str, ...] = Field(
        min_length=1, description="Rules that choose the layers; see `probescale list strategies`."
    )
    budgets: tuple[OneBudget, ...] = Field(
        default=(), description="As selection.budget has it, one each; k=3 is a number of layers. Left out: the run's."
    )
    seeds: tuple[Annotated[Int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(0,), min_length=1, description="Every cell is done with each of them."
    )
    engine: Literal["local", "ray"] = Field(
        default="local", description="local: processes on this machine; ray: a Ray cluster (extra `ray`)."
    )
    workers: Int = Field(default=1, ge=1, le=10**4, description="Cells at a time, with engine local.")
    address: str | None = Field(
        default=None, description="Of the Ray cluster, such as auto; left out: Ray starts on this machine."
    )
    cpus: Int | None = Field(
        default=None, ge=1, le=10**4, description="Of every cell. Left out: local, the cores shared out; ray, 1."
    )
    gpus: float = Field(default=0, ge=0, le=1000, description="Of every cell, with engine ray.")
    retries: Int = Field(
        default=2, ge=0, le=100, description="How often a cell whose process died is begun again; not after an error."
    )
