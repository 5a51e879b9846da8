"""Callbacks of a training: its progress bar, and stopping at the best epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerState

from probescale.recovery.checkpoints import checkpoint_path, find_newest
from probescale.utils.distributed import is_main_process

BEST = "best.safetensors"  # in a checkpoint: the weights of the best epoch so far


class ProgressBar(TrainerCallback):
    """Advances a progress bar by one for every step; a resumed training starts where it was."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def on_train_begin(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        self.advance(state.global_step)

    def on_step_end(self, *_: object, **__: object) -> None:
        self.advance(1)


class EarlyStop(TrainerCallback):
    """Stops after `patience` epochs without a lower loss, and restores the weights of the best epoch."""

    def __init__(self, model: nn.Module, loss: Callable[[], float], patience: int, checkpoints: Path | None) -> None:
        self.model, self.loss, self.patience, self.checkpoints = model, loss, patience, checkpoints
        self.best, self.epochs_since, self.best_weights = float("inf"), 0, dict[str, Tensor]()
        if checkpoints and (newest := find_newest(checkpoints)):
            with safe_open(newest / BEST, "pt") as stored:
                self.best_weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
                metadata = stored.metadata()
            self.best, self.epochs_since = float(metadata["best"]), int(metadata["since"])

    def on_epoch_end(self, args: object, state: object, control: Any, **_: object) -> None:  # noqa: ANN401
        self.model.eval()
        loss = self.loss()
        self.model.train()
        self.epochs_since += 1
        if loss < self.best:
            self.best, self.epochs_since, self.best_weights = loss, 0, copy.deepcopy(self.model.state_dict())
        control.should_training_stop = self.epochs_since >= self.patience

    def on_save(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        if self.checkpoints and is_main_process():
            # safetensors refuses tensors that share memory, so tied weights are stored twice.
            weights = {name: tensor.clone() for name, tensor in self.best_weights.items()}
            metadata = {"best": repr(self.best), "since": str(self.epochs_since)}
            save_file(weights, checkpoint_path(self.checkpoints, state.global_step) / BEST, metadata)

    def on_train_end(self, *_: object, **__: object) -> None:
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
