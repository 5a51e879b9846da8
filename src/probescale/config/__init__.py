"""The run configuration: what a run does, as frozen data.

Every field carries its help; docs/reference/configuration.md is generated from it. Names of tasks, strategies and
metrics are checked by the packages that own them (pipeline/validate.py), so that adding one needs no change here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from probescale.config.probing import Granularity as Granularity
from probescale.config.probing import ProbingConfig as ProbingConfig
from probescale.config.probing import RelevanceConfig as RelevanceConfig
from probescale.config.recovery import ClassWeights as ClassWeights
from probescale.config.recovery import RecoveryConfig as RecoveryConfig
from probescale.config.selection import OneBudget as OneBudget
from probescale.config.selection import SelectionConfig as SelectionConfig
from probescale.config.selection import ShrinkConfig as ShrinkConfig
from probescale.config.selection import shrink_alone
from probescale.config.task import WORD_POOLINGS as WORD_POOLINGS
from probescale.config.task import DataConfig as DataConfig
from probescale.config.task import Head as Head
from probescale.config.task import ModelConfig as ModelConfig
from probescale.config.task import OtherModel as OtherModel
from probescale.config.task import Pooling as Pooling
from probescale.config.task import ProbeConfig as ProbeConfig
from probescale.config.task import ProbeTarget as ProbeTarget
from probescale.config.task import SwapsConfig as SwapsConfig
from probescale.config.task import TaskConfig as TaskConfig
from probescale.config.task import UnlabelledConfig as UnlabelledConfig
from probescale.utils.sections import Int, Section, auto_alone

REFERENCES = {  # entries of `compare` for generative models, and what their rows are called
    "plain_loss": "trained with the plain loss",
    "full_model": "full model, trained on the same text",
}


class RunConfig(Section):
    """The whole configuration of a run."""

    model: ModelConfig = Field(description="The pre-trained model.")
    task: TaskConfig = Field(description="The task: a built-in name, or your own data.")
    probing: ProbingConfig = Field(default_factory=ProbingConfig, description="How layers are probed.")
    relevance: RelevanceConfig = Field(default_factory=RelevanceConfig, description="How scores become relevance.")
    selection: SelectionConfig = Field(description="Which layers are kept.")
    compare: tuple[Annotated[str | OtherModel, Field(union_mode="left_to_right")], ...] = Field(
        default=(),
        description="Strategies to compare with, such as top_k, and other models: {model: distilroberta-base}. Each "
        "costs one more training. For kind text also plain_loss (the same layers, trained without the original's "
        "answers) and full_model (all layers, trained on the same text).",
    )
    shrink: Annotated[ShrinkConfig, BeforeValidator(shrink_alone)] = Field(
        default_factory=ShrinkConfig,
        description="Which other parts are made smaller, within the same budget. `auto`: every part where it pays; "
        "`none`: layers only.",
    )
    recovery: Annotated[RecoveryConfig, BeforeValidator(auto_alone)] = Field(
        default_factory=RecoveryConfig,
        description="How every subnetwork and the original are trained. `auto`: everything is chosen.",
    )
    time: str | None = Field(
        default=None,
        description="How long the run may take, such as 30m or 2h: how much is trained and tried is chosen to fit.",
    )
    seed: Int = Field(
        default=0, ge=0, lt=2**32, description="Seed of the subsamples, the splits, the new head and the batch order."
    )

    @field_validator("compare")
    @classmethod
    def _different_names(cls, compare: tuple[str | OtherModel, ...]) -> tuple[str | OtherModel, ...]:
        names = [entry.called for entry in compare if isinstance(entry, OtherModel)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f'two models would both be called "{twice}"; give one of them another name:')
        return compare

    @property
    def compared_strategies(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.compare if isinstance(entry, str) and entry not in REFERENCES)

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(name for name in REFERENCES if name in self.compare)

    @property
    def other_models(self) -> tuple[OtherModel, ...]:
        return tuple(entry for entry in self.compare if isinstance(entry, OtherModel))

    def list_sources(self) -> list[str]:
        """Every model and data set that a run reads, as the configuration names them."""
        task = self.task
        data = [task.train, task.dev, task.calibration, task.second, task.unlabelled, task.bias]
        data = [*data, self.shrink.corpus, *(probe.data for probe in task.probes)]
        models = [self.model.source, *([self.recovery.teacher] if self.recovery.teacher else [])]
        models += [other.model for other in self.other_models]
        return [*models, *(part.source for part in data if part)]
