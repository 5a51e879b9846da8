"""One training of a model on a TrainingSet, in all processes that share it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, set_seed

from probescale.errors import Diverged
from probescale.models.fast_float32 import alike_when_repeated
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.recovery.adapters import low_rank_adapters
from probescale.recovery.callbacks import EarlyStop, ProgressBar
from probescale.recovery.checkpoints import Checkpoints, find_newest
from probescale.recovery.recipe import Recipe
from probescale.recovery.states import capture_states
from probescale.recovery.trainer import RecoveryTrainer, build_arguments, mean_epoch_losses
from probescale.recovery.training_set import TrainingSet
from probescale.utils.progress import progress

DROPOUT_NAMES = ("dropout", "attention_dropout", "activation_dropout", "dropout_prob", "dropout_rate")


@dataclass(frozen=True)
class TrainingRun:
    """How one training runs, and where it writes."""

    recipe: Recipe
    seed: int
    title: str
    tracking: Path | None = None  # folder for trackers that write files
    checkpoints: Path | None = None  # folder for checkpoints; None: none are saved


def train(loaded: LoadedModel, data: TrainingSet, run: TrainingRun) -> tuple[float, ...]:
    """Train the model in place; the mean loss of every epoch. Resumes from the newest checkpoint, if there is one."""
    set_seed(run.seed)
    recipe, objective = run.recipe, data.objective
    blocks = list(loaded.family.layers(loaded.model)) if objective.states is not None else []
    rank = recipe.adapter_rank if recipe.adapters == "lora" else None
    steps = recipe.count_steps(len(data.used))
    with (
        tempfile.TemporaryDirectory() as scratch,
        quiet_transformers(),
        capture_states(blocks) as captured,
        low_rank_adapters(loaded.model, rank),
        states_computed_twice(loaded.model, wanted=recipe.save_memory),
    ):
        arguments = build_arguments(recipe, str(run.tracking or scratch), run.seed, run.title, steps)
        trainer = RecoveryTrainer(loaded, data, captured, arguments, recipe.layer_decay, run.checkpoints)
        if data.held_out:
            loss = partial(data.held_out_loss, loaded)
            trainer.add_callback(EarlyStop(loaded.model, loss, recipe.patience, run.checkpoints))
        if run.checkpoints:
            trainer.add_callback(Checkpoints(run.checkpoints))
        newest = find_newest(run.checkpoints) if run.checkpoints else None
        with progress(run.title, steps) as advance:
            trainer.add_callback(ProgressBar(advance))
            trainer.train(resume_from_checkpoint=str(newest) if newest else None)
    loaded.model.eval()
    if not all(torch.isfinite(parameter).all() for parameter in loaded.model.parameters()):
        raise Diverged(f"{run.title} diverged: weights are no longer finite", rate=recipe.learning_rate)
    return mean_epoch_losses(trainer.state.log_history)


@contextmanager
def states_computed_twice(model: PreTrainedModel, *, wanted: bool) -> Iterator[None]:
    """Compute the states of the layers again in the backward pass, while the block lasts, instead of keeping them."""
    if not wanted:
        yield
        return
    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": alike_when_repeated})
    try:
        yield
    finally:
        model.gradient_checkpointing_disable()
        model.disable_input_require_grads()  # its hook cannot be sent to other processes


@contextmanager
def changed_dropout(model: nn.Module, share: float | None) -> Iterator[None]:
    """Use another dropout rate while the block lasts; None: the model's own."""
    before: list[tuple[nn.Module, str, float]] = []
    for module in model.modules() if share is not None else ():
        # Some modules hand their rate to a function instead of having an nn.Dropout.
        for name in ("p",) if isinstance(module, nn.Dropout) else DROPOUT_NAMES:
            if isinstance(value := getattr(module, name, None), float):
                before.append((module, name, value))
                setattr(module, name, share)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
