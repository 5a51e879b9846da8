"""What a training learns from: tokenized inputs, the objective, and which inputs are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset
from probescale.recovery.inputs import Inputs, TextInputs, build_inputs
from probescale.recovery.label_scale import LabelScale, fit_label_scale
from probescale.recovery.likeliest_tokens import LikeliestTokens
from probescale.recovery.objective import Objective, has_label
from probescale.recovery.pair_lessons import PairLessons
from probescale.recovery.predict import compute_logits
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import TeacherOutputs
from probescale.tasks.balance import weigh_classes
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.tasks.passages import Passages
from probescale.tasks.sampling import split_rows
from probescale.tasks.unlabelled import joined


@dataclass(frozen=True)
class TrainingSet:
    """Inputs, the labelled ones first, and what is to be learned from them."""

    inputs: Inputs
    objective: Objective
    used: Sequence[int]  # numbers of the inputs to learn from
    held_out: Sequence[int] = ()  # numbers of the inputs to validate on

    def hold_out(self, data: Data, share: float, seed: int) -> TrainingSet:
        """The same set with a share of its labelled inputs held out; `data` has their labels."""
        if not share:
            return self
        running = isinstance(self.inputs, TextInputs)
        held_out = split_rows([0] * len(self.inputs), share, seed)[1] if running else draw_validation(data, share, seed)
        excluded = set(held_out)
        return replace(self, used=[number for number in self.used if number not in excluded], held_out=held_out)

    def limit(self, texts: int | None, labelled: int) -> TrainingSet:
        """The same set with at most this many inputs: all labelled ones, then the first of the others."""
        most = len(self.inputs) if texts is None else max(texts, labelled)
        return replace(self, used=[number for number in self.used if number < most])

    def without(self, reserved: frozenset[int]) -> TrainingSet:
        """The same set without some inputs."""
        return replace(self, used=[number for number in self.used if number not in reserved]) if reserved else self

    def held_out_logits(self, loaded: LoadedModel) -> tuple[Tensor, Tensor]:
        """The model's logits on the held-out inputs, and the numbers of their rows."""
        logits = torch.from_numpy(compute_logits(loaded, self.inputs, only=self.held_out, title="validating"))
        rows = torch.nonzero(~logits[:, 0].isnan()).flatten()
        return logits[rows], rows

    def held_out_loss(self, loaded: LoadedModel) -> float:
        """The model's loss on the labels of the held-out inputs; where none has a label, on the teacher's answers."""
        if isinstance(self.inputs, TextInputs):
            return float(np.nanmean(compute_logits(loaded, self.inputs, only=self.held_out, title="validating")[:, 0]))
        logits, rows = self.held_out_logits(loaded)
        objective = self.objective
        if has_label(objective.labels[rows]).any():
            objective = replace(objective, teacher_logits=None)
        return objective.loss(logits, rows).item()


def draw_validation(data: Data, share: float, seed: int) -> list[int]:
    """Numbers of the labelled inputs that are held out to choose the best epoch by."""
    return split_rows(data.classes, share, seed)[1]


def build_training_set(
    loaded: LoadedModel,
    train: Data,
    recipe: Recipe,
    max_length: int,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    only: Sequence[int] | None = None,
) -> tuple[TrainingSet, LabelScale]:
    """All inputs and the objective of the recipe; and the scale that the labels are learned in.

    `only`: numbers of the inputs that are needed; the others have no tokens.
    """
    inputs = build_inputs(loaded.tokenizer, joined(train, teacher.unlabelled if teacher else None), max_length, only)
    kind, known = find_kind(train.kind), train.row_labels
    scale = fit_label_scale(known, loaded.model) if kind.standardised else LabelScale()
    states = teacher.states_for(kept) if teacher and kept and (recipe.states or recipe.healing) else None
    weights = weigh_classes(train, recipe.class_weights)
    objective = Objective(
        labels=torch.from_numpy(inputs.labels(scale.standardise(known))),
        criterion=kind.loss.for_first(recipe.dimensions),
        class_weights=None if weights is None else torch.from_numpy(weights.astype(np.float32)),
        teacher_logits=_as_targets(teacher, scale) if teacher else None,
        teacher_share=recipe.soft,
        temperature=recipe.temperature,
        states=None if states is None else torch.from_numpy(states),
        state_weight=recipe.states,
        pairs=PairLessons(train.taught) if isinstance(train, Passages) and train.taught and recipe.pairs else None,
        pair_weight=recipe.pairs,
    )
    used: Sequence[int] = range(len(inputs))
    if isinstance(inputs, TextInputs):  # of a long conversation, the part that is read may have no answer
        used = [number for number in used if (inputs.blocks.rows_of(number) >= 0).any()]
    return TrainingSet(inputs, objective, used), scale


def _as_targets(teacher: TeacherOutputs, scale: LabelScale) -> Tensor | LikeliestTokens:
    """The teacher's logits in the scale that labels are learned in; likeliest tokens stay on disk."""
    return teacher.likeliest or torch.from_numpy(scale.standardise(teacher.logits))
