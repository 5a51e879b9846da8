"""Checkpoints of a long training, from which it resumes after an interruption. Incomplete ones are ignored."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from probescale.utils.distributed import broadcast_from_main, is_main_process

SECONDS_BETWEEN = 300.0  # of training between two checkpoints
SECONDS_AT_END = 30.0  # of training since the last checkpoint that are worth one at the end
CHECK_EVERY = 10  # steps after which all processes look at the clock together
COMPLETE = "complete"  # file in a checkpoint, written after all others


class Checkpoints(TrainerCallback):
    """Saves the state of training from time to time and at the end, before evaluation. Only the newest is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.last_saved = folder, time.monotonic()

    def on_step_end(self, args: object, state: TrainerState, control: Any, **_: object) -> None:  # noqa: ANN401
        ends_epoch = state.global_step * state.num_train_epochs % state.max_steps == 0
        if state.global_step % CHECK_EVERY == 0 and not ends_epoch:
            self._save_after(SECONDS_BETWEEN, control)

    def on_epoch_end(self, args: object, state: TrainerState, control: Any, **_: object) -> None:  # noqa: ANN401
        """Runs after the other callbacks, so that a resumed training does not repeat what they did."""
        last = state.global_step >= state.max_steps
        if last or not control.should_training_stop:
            self._save_after(SECONDS_AT_END if last else SECONDS_BETWEEN, control)

    def _save_after(self, seconds: float, control: Any) -> None:  # noqa: ANN401
        if broadcast_from_main(time.monotonic() - self.last_saved >= seconds):
            control.should_save = control.should_log = True  # the log has the losses so far

    def on_save(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        self.last_saved = time.monotonic()
        if is_main_process():
            new = checkpoint_path(self.folder, state.global_step)
            (new / COMPLETE).touch()
            for old in self.folder.glob("checkpoint-*"):
                if old != new:
                    shutil.rmtree(old)


def find_newest(folder: Path) -> Path | None:
    """The newest complete checkpoint in a folder, if there is one."""
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{COMPLETE}")]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where transformers' Trainer saves its checkpoint of a step."""
    return folder / f"checkpoint-{step}"
