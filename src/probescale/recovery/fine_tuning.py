"""Training a model back to strength: the same recipe for the original and every subnetwork."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset as Part
from transformers import set_seed

from probescale.config import RecoveryConfig
from probescale.errors import UserError
from probescale.models.loading import LoadedModel, compute_fingerprint, quiet_transformers
from probescale.models.subsets import Subset
from probescale.recovery.callbacks import EarlyStop, ProgressBar
from probescale.recovery.checkpoints import Checkpoints, find_newest
from probescale.recovery.inputs import Inputs, build_inputs
from probescale.recovery.label_scale import LabelScale, fit_label_scale
from probescale.recovery.objective import Objective
from probescale.recovery.predict import compute_logits
from probescale.recovery.states import capture_states
from probescale.recovery.teacher import TeacherOutputs
from probescale.recovery.trainer import RecoveryTrainer, build_arguments, mean_epoch_losses
from probescale.tasks.data import Data
from probescale.tasks.kinds import Kind, find_kind
from probescale.tasks.sampling import split_rows
from probescale.tasks.unlabelled import joined
from probescale.utils.distributed import run_on_all
from probescale.utils.progress import progress

TRIAL_HELD_OUT = 1000  # inputs on which a short training is judged, at most


def fine_tune(
    loaded: LoadedModel,
    train: Data,
    recipe: RecoveryConfig,
    *,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    max_length: int = 128,
    seed: int = 0,
    title: str = "fine-tuning",
    tracked: Path | None = None,
    checkpoints: Path | None = None,
) -> tuple[float, ...]:
    """Train the model in place: on the labels, and on what a teacher says of the same and of unlabelled texts.

    What it gives is the mean loss of every epoch. `tracked`: a folder for what `recipe.tracking` writes to files.
    `checkpoints`: a folder for the state of a long training, from which the same call goes on if it was cut off.

    `kept`: which layers of the teacher the model has; with it, its states can be brought near the teacher's.
    The last state is kept, unless a part of train is set aside to find the best one.
    """
    if recipe.epochs == 0:
        return ()
    inputs, objective, scale = _asked(loaded, train, recipe, teacher, kept, max_length)
    used, held = _parts(train, inputs, recipe.validation, seed)
    with _dropout(loaded.model, recipe.dropout):
        cut_off = checkpoints is not None and find_newest(checkpoints) is not None
        if recipe.healing and objective.states is not None and not cut_off:
            healing = replace(objective, answer_weight=0.0, state_weight=1.0)
            short = recipe.model_copy(update={"epochs": recipe.healing})
            run_on_all(_train, loaded, inputs, used, [], healing, short, seed, f"healing, {title}")
        losses = run_on_all(_train, loaded, inputs, used, held, objective, recipe, seed, title, tracked, checkpoints)
    if find_kind(train.kind).standardised:
        scale.fold_into_head(loaded.model)
    loaded.fingerprint = compute_fingerprint(loaded.model)
    return losses


def train_briefly(
    loaded: LoadedModel,
    train: Data,
    recipe: RecoveryConfig,
    *,
    teacher: TeacherOutputs | None = None,
    kept: Subset | None = None,
    texts: int,
    max_length: int = 128,
    seed: int = 0,
    title: str = "trying",
) -> tuple[float, float]:
    """Train the model in place for a short while; its loss then on inputs that were set aside, and that of who gives
    all of them the same answer.

    `texts`: how many it reads, some of them again where there are fewer.
    """
    inputs, objective, _ = _asked(loaded, train, recipe, teacher, kept, max_length)
    order = np.random.default_rng(seed).permutation(len(inputs)).tolist()
    first = count_held_out(len(order))
    held, used = order[:first], order[first : first + texts]
    short = recipe.model_copy(update={"epochs": max(round(texts / len(used)), 1), "tracking": ()})
    with _dropout(loaded.model, recipe.dropout):
        return run_on_all(_train_briefly, loaded, inputs, used, held, objective, short, seed, title)


def count_held_out(inputs: int) -> int:
    """How many of them a short training is judged on.

    >>> count_held_out(120), count_held_out(60_000)
    (24, 1000)
    """
    return max(min(TRIAL_HELD_OUT, inputs // 5), 1)


def _train_briefly(
    loaded: LoadedModel,
    inputs: Inputs,
    used: Sequence[int],
    held: Sequence[int],
    objective: Objective,
    recipe: RecoveryConfig,
    seed: int,
    title: str,
) -> tuple[float, float]:
    _train(loaded, inputs, used, [], objective, recipe, seed, title)
    answers, rows = _held_out(loaded, inputs, held)
    return objective.loss(answers, rows).item(), objective.loss(objective.constant(answers, rows), rows).item()


def _asked(
    loaded: LoadedModel,
    train: Data,
    recipe: RecoveryConfig,
    teacher: TeacherOutputs | None,
    kept: Subset | None,
    max_length: int,
) -> tuple[Inputs, Objective, LabelScale]:
    """All inputs, labelled ones first, and what is to be learnt of them."""
    inputs = build_inputs(loaded.tokenizer, joined(train, teacher.unlabelled if teacher else None), max_length)
    labels, kind = train.row_labels, find_kind(train.kind)
    scale = fit_label_scale(labels, loaded.model) if kind.standardised else LabelScale()
    return inputs, _objective(scale.standardize(labels), inputs, recipe, teacher, kept, scale, kind), scale


def _objective(
    known: np.ndarray,
    inputs: Inputs,
    recipe: RecoveryConfig,
    teacher: TeacherOutputs | None,
    kept: Subset | None,
    scale: LabelScale,
    kind: Kind,
) -> Objective:
    labels = np.full((inputs.rows, *known.shape[1:]), np.nan, np.float32)  # unlabelled texts come behind
    labels[: len(known)] = known
    states = teacher.states_for(kept) if teacher and kept and (recipe.states or recipe.healing) else None
    return Objective(
        labels=torch.from_numpy(labels),
        criterion=kind.loss,
        answers=torch.from_numpy(scale.standardize(teacher.logits)) if teacher else None,
        soft=recipe.soft,
        temperature=recipe.temperature,
        states=None if states is None else torch.from_numpy(states),
        state_weight=recipe.states,
    )


def _parts(train: Data, inputs: Inputs, validation: float, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """Inputs to learn from, and labelled ones that are set aside."""
    if not validation:
        return range(len(inputs)), []
    _, held = split_rows(train.classes, validation, seed)
    aside = set(held)
    return [number for number in range(len(inputs)) if number not in aside], held


def _train(
    loaded: LoadedModel,
    inputs: Inputs,
    used: Sequence[int],
    held: Sequence[int],
    objective: Objective,
    recipe: RecoveryConfig,
    seed: int,
    title: str,
    tracked: Path | None = None,
    checkpoints: Path | None = None,
) -> tuple[float, ...]:
    set_seed(seed)
    blocks = list(loaded.family.layers(loaded.model)) if objective.states is not None else []
    steps = recipe.epochs * -(-len(used) // recipe.batch_size)
    with tempfile.TemporaryDirectory() as scratch, quiet_transformers(), capture_states(blocks) as seen:
        arguments = build_arguments(recipe, str(tracked or scratch), seed, title, steps)
        data, lengths = Part(inputs, used), inputs.tokens.lengths[used].tolist()
        trainer = RecoveryTrainer(
            loaded, data, lengths, inputs.collate, objective, seen, arguments, recipe.layer_decay, checkpoints
        )
        if held:
            by_labels = replace(objective, answers=None)
            loss = lambda: _held_out_loss(loaded, inputs, held, by_labels)  # noqa: E731
            trainer.add_callback(EarlyStop(loaded.model, loss, recipe.patience, checkpoints))
        if checkpoints:
            trainer.add_callback(Checkpoints(checkpoints))
        before = find_newest(checkpoints) if checkpoints else None
        with progress(title, steps) as advance:
            trainer.add_callback(ProgressBar(advance))
            trainer.train(resume_from_checkpoint=str(before) if before else None)
    loaded.model.eval()
    if not all(torch.isfinite(parameter).all() for parameter in loaded.model.parameters()):
        raise UserError(
            f"{title} went astray: weights are not finite numbers any more",
            field="recovery.learning_rate",
            hint=f"choose a smaller one than {recipe.learning_rate:g}",
        )
    return mean_epoch_losses(trainer.state.log_history)


def _held_out_loss(loaded: LoadedModel, inputs: Inputs, held: Sequence[int], objective: Objective) -> float:
    return objective.loss(*_held_out(loaded, inputs, held)).item()


def _held_out(loaded: LoadedModel, inputs: Inputs, held: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model answers there, and the numbers of the rows."""
    answers = torch.from_numpy(compute_logits(loaded, inputs, only=held, title="validating"))
    rows = torch.nonzero(~answers[:, 0].isnan()).flatten()
    return answers[rows], rows


@contextmanager
def _dropout(model: nn.Module, share: float | None) -> Iterator[None]:
    """Another dropout while the block lasts; None: the model's own."""
    names = ("dropout", "attention_dropout", "activation_dropout", "dropout_prob", "dropout_rate")
    own: list[tuple[nn.Module, str, float]] = []
    for module in model.modules() if share is not None else ():
        # Of a dropout module; and where it is handed to a function.
        for name in ("p",) if isinstance(module, nn.Dropout) else names:
            if isinstance(value := getattr(module, name, None), float):
                own.append((module, name, value))
                setattr(module, name, share)
    try:
        yield
    finally:
        for module, name, value in own:
            setattr(module, name, value)
