"""Fine-tune the original on labels, and subnetworks on labels and the teacher's outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from probescale.models.loading import LoadedModel, compute_fingerprint
from probescale.models.subsets import Subset
from probescale.recovery.checkpoints import find_newest
from probescale.recovery.inputs import TextInputs
from probescale.recovery.label_scale import LabelScale
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import TeacherOutputs
from probescale.recovery.training import TrainingRun, changed_dropout, train
from probescale.recovery.training_set import TrainingSet, build_training_set
from probescale.tasks.data import Data
from probescale.tasks.kinds import find_kind
from probescale.utils.distributed import run_on_all


def fine_tune(
    loaded: LoadedModel,
    data: Data,
    recipe: Recipe,
    *,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    reserved: frozenset[int] = frozenset(),
    max_length: int = 128,
    seed: int = 0,
    title: str = "fine-tuning",
    tracked: Path | None = None,
    checkpoints: Path | None = None,
) -> tuple[float, ...]:
    """Fine-tune the model in place; returns the mean loss of every epoch.

    `teacher`: outputs to distill from, on the same texts and on unlabelled ones. `kept`: the teacher's layers that the
    model has; they allow to match its states as well. `reserved`: numbers of inputs that nothing is learned from.
    `tracked`: folder for trackers that write files. `checkpoints`: folder for checkpoints; the same call resumes from
    them. The weights of the last epoch are kept, or with `recipe.validation` those of the best one.
    """
    if recipe.epochs == 0:
        return ()
    learned, scale = prepare_training(
        loaded, data, recipe, teacher=teacher, kept=kept, reserved=reserved, max_length=max_length, seed=seed
    )
    standardised = find_kind(data.kind).standardised
    if standardised and loaded.head_is_trained:
        scale.take_out_of_head(loaded.model)
    run = TrainingRun(recipe, seed, title, tracked, checkpoints)
    with changed_dropout(loaded.model, recipe.dropout):
        if recipe.healing and learned.objective.states is not None and not (checkpoints and find_newest(checkpoints)):
            _heal(loaded, learned, run)
        losses = run_on_all(train, loaded, learned, run)
    if standardised:
        scale.fold_into_head(loaded.model)
    loaded.fingerprint, loaded.head_is_trained = compute_fingerprint(loaded.model), True
    return losses


def prepare_training(
    loaded: LoadedModel,
    data: Data,
    recipe: Recipe,
    *,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    reserved: frozenset[int] = frozenset(),
    max_length: int = 128,
    seed: int = 0,
) -> tuple[TrainingSet, LabelScale]:
    """What the recipe learns from, without what it holds out; and the scale that labels are learned in."""
    learned, scale = build_training_set(loaded, data, recipe, max_length, teacher, kept)
    labelled = 0 if isinstance(learned.inputs, TextInputs) else len(data)  # any block of running text can be left out
    learned = learned.limit(recipe.texts, labelled).hold_out(data, recipe.validation, seed)
    return learned.without(reserved), scale


def _heal(loaded: LoadedModel, data: TrainingSet, run: TrainingRun) -> None:
    """Match the teacher's states alone for a few epochs, before the other targets."""
    objective = replace(data.objective, output_weight=0.0, state_weight=1.0, pairs=None)
    recipe = replace(run.recipe, epochs=run.recipe.healing)
    healing = TrainingRun(recipe, run.seed, f"healing, {run.title}")
    run_on_all(train, loaded, replace(data, objective=objective, held_out=()), healing)
