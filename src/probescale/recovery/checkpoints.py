"""Training that goes on where it was cut off: the trainer's own checkpoints, of which only whole ones count."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from probescale.utils.distributed import broadcast_from_main, is_main_process

BETWEEN, AT_END = 300.0, 30.0  # seconds of training that are worth a checkpoint
STEPS = 10  # after so many the processes look at the clock together
WHOLE = "whole"  # a file that a checkpoint has when all the others are written


class Checkpoints(TrainerCallback):
    """Only the newest is kept; there is one at the very end, too, as evaluating takes its time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.since = folder, time.monotonic()

    def on_step_end(self, args: object, state: TrainerState, control: Any, **_: object) -> None:  # noqa: ANN401
        ends_epoch = state.global_step * state.num_train_epochs % state.max_steps == 0
        if state.global_step % STEPS == 0 and not ends_epoch:
            self._save_after(BETWEEN, control)

    def on_epoch_end(self, args: object, state: TrainerState, control: Any, **_: object) -> None:  # noqa: ANN401
        """Behind whatever else is done at an epoch's end: it is not done again."""
        last = state.global_step >= state.max_steps
        if last or not control.should_training_stop:
            self._save_after(AT_END if last else BETWEEN, control)

    def _save_after(self, seconds: float, control: Any) -> None:  # noqa: ANN401
        if broadcast_from_main(time.monotonic() - self.since >= seconds):
            control.should_save = control.should_log = True  # with the losses so far

    def on_save(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        self.since = time.monotonic()
        if is_main_process():
            new = checkpoint_path(self.folder, state.global_step)
            (new / WHOLE).touch()
            for old in self.folder.glob("checkpoint-*"):
                if old != new:
                    shutil.rmtree(old)


def find_newest(folder: Path) -> Path | None:
    """What to go on from."""
    whole = [path.parent for path in folder.glob(f"checkpoint-*/{WHOLE}")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step}"
