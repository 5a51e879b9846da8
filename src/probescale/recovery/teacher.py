"""What a teacher says of the training inputs, labelled or not: asked once, for all students."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_model, save_model

from probescale.models.loading import LoadedModel, compute_fingerprint
from probescale.models.subsets import Subset
from probescale.recovery.inputs import Data, Inputs, build_inputs
from probescale.recovery.predict import compute_logits
from probescale.tasks.unlabelled import joined
from probescale.utils.distributed import is_main_process, run_on_all
from probescale.utils.files import atomic_folder

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class TeacherOutputs:
    """Further inputs without labels, and what the teacher makes of the labelled ones and then of these."""

    unlabelled: Data | None
    answers: np.ndarray  # (rows, classes) logits; NaN for words that the teacher did not see
    states: np.ndarray | None  # (inputs, layers, hidden) the mean over the tokens

    @classmethod
    def load(cls, folder: Path, unlabelled: Data | None) -> TeacherOutputs:
        states = folder / "states.npy"
        kept = np.load(states, mmap_mode="r") if states.exists() else None
        return cls(unlabelled, np.load(folder / "answers.npy"), kept)

    def states_for(self, kept: Subset) -> np.ndarray | None:
        """What the states of a student with these layers should become: its last layer does the work of the last."""
        if self.states is None:
            return None
        return self.states[:, [*(layer - 1 for layer in kept[:-1]), -1]]


def record_teacher_outputs(
    teacher: LoadedModel,
    train: Data,
    unlabelled: Data | None,
    folder: Path,
    *,
    states: bool = False,
    weights: bool = False,
    max_length: int = 128,
    batch_tokens: int = 2048,
) -> TeacherOutputs:
    """Ask the teacher about everything, and keep its answers in a folder; its states and weights where wanted."""
    inputs = build_inputs(teacher.tokenizer, joined(train, unlabelled), max_length)
    with atomic_folder(folder) as partial:
        run_on_all(_ask, teacher, inputs, partial, states=states, batch_tokens=batch_tokens)
        if weights:
            save_model(teacher.model, str(partial / WEIGHTS))
    return TeacherOutputs.load(folder, unlabelled)


def load_teacher(pupil: LoadedModel, folder: Path) -> LoadedModel:
    """The teacher itself, from the folder: what it was before it learnt, with the weights it has since."""
    teacher = replace(pupil, model=copy.deepcopy(pupil.model))
    load_model(teacher.model, str(folder / WEIGHTS))
    teacher.fingerprint = compute_fingerprint(teacher.model)
    return teacher


def _ask(teacher: LoadedModel, inputs: Inputs, folder: Path, *, states: bool, batch_tokens: int) -> None:
    shape = (len(inputs), teacher.layers, teacher.model.config.hidden_size)
    options = {"batch_tokens": batch_tokens, "title": "asking the teacher"}
    with _table(folder / "states.npy" if states and is_main_process() else Path(os.devnull), shape) as receive:
        answers = compute_logits(teacher, inputs, receive=receive if states else None, **options)
    if is_main_process():
        np.save(folder / "answers.npy", answers)


@contextmanager
def _table(path: Path, shape: tuple[int, int, int]) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """An array on disk whose rows come in any order. Written, not mapped: there, a full disk kills the process."""
    size = shape[1] * shape[2] * 4
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()

        def receive(numbers: np.ndarray, rows: np.ndarray) -> None:
            for number, row in zip(numbers.tolist(), np.ascontiguousarray(rows, "<f4"), strict=True):
                file.seek(start + number * size)
                file.write(row.data)

        yield receive
