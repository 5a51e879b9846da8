"""Checkpoints of a long training, from which it resumes after an interruption. Only complete, intact ones count."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from probescale.utils.distributed import broadcast_from_main, is_main_process
from probescale.utils.files import file_sha256, sync, write_json

SECONDS_BETWEEN = 300.0  # of training between two checkpoints
SECONDS_AT_END = 30.0  # of training since the last checkpoint that are worth one at the end
CHECK_EVERY = 10  # steps after which all processes look at the clock together
COMPLETE = "complete"  # file in a checkpoint, written after all others: their hashes


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
            sync(new)
            write_json(new / COMPLETE, _hash_files(new))
            for old in self.folder.glob("checkpoint-*"):
                if old != new:
                    shutil.rmtree(old)


def find_newest(folder: Path) -> Path | None:
    """The newest checkpoint in a folder that is complete and as it was written, if there is one."""
    intact = [path.parent for path in folder.glob(f"checkpoint-*/{COMPLETE}") if _is_intact(path)]
    return max(intact, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _hash_files(checkpoint: Path) -> dict[str, str]:
    files = (path for path in checkpoint.rglob("*") if path.is_file() and path.name != COMPLETE)
    return {str(path.relative_to(checkpoint)): file_sha256(path) for path in files}


def _is_intact(complete: Path) -> bool:
    try:
        return json.loads(complete.read_text(encoding="utf-8")).items() <= _hash_files(complete.parent).items()
    except (ValueError, AttributeError):  # the list itself is damaged
        return False


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where transformers' Trainer saves its checkpoint of a step."""
    return folder / f"checkpoint-{step}"
