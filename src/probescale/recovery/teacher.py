"""The teacher's logits and states on the training inputs, labelled or not: computed once, for all students."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_model, save_model

from probescale.models.loading import LoadedModel, compute_fingerprint
from probescale.models.subsets import Subset
from probescale.recovery.inputs import Inputs, TextInputs, build_inputs
from probescale.recovery.likeliest_tokens import IDS, LikeliestTokens, record_likeliest_tokens
from probescale.recovery.predict import compute_logits
from probescale.tasks.data import Data
from probescale.tasks.unlabelled import joined
from probescale.utils.distributed import is_main_process, run_on_all
from probescale.utils.files import atomic_folder

WEIGHTS, LOGITS, STATES = "model.safetensors", "logits.npy", "states.npy"


@dataclass(frozen=True)
class TeacherOutputs:
    """A teacher's outputs on the labelled inputs, followed by those on the unlabelled ones."""

    unlabelled: Data | None
    logits: np.ndarray  # (rows, classes); NaN for words beyond the length limit
    states: np.ndarray | None  # (inputs, layers, hidden), means over the tokens
    likeliest: LikeliestTokens | None = None  # of running text, in the place of logits

    @classmethod
    def load(cls, folder: Path, unlabelled: Data | None) -> TeacherOutputs:
        """Outputs that `record_teacher_outputs` wrote for the same unlabelled data."""
        if (folder / IDS).exists():
            return cls(unlabelled, np.zeros((0, 0), np.float32), None, LikeliestTokens.load(folder))
        path = folder / STATES
        states = np.load(path, mmap_mode="r") if path.exists() else None
        return cls(unlabelled, np.load(folder / LOGITS), states)

    def states_for(self, kept: Subset) -> np.ndarray | None:
        """Target states for a student with these layers: its last layer takes over from the teacher's last one."""
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
    weights: LoadedModel | None = None,
    columns: Sequence[int] | None = None,
    max_length: int = 128,
) -> TeacherOutputs:
    """Run the teacher on all inputs and write its logits to a folder; on request also its states.

    `weights`: the model that subnetworks are cut from, kept in the same folder. `columns`: of the teacher's logits, in
    the order of the task's labels; by default they have the same order.
    """
    inputs = build_inputs(teacher.tokenizer, joined(train, unlabelled), max_length)
    with atomic_folder(folder) as partial:
        run_on_all(_run_teacher, teacher, inputs, partial, states=states)
        if columns is not None:
            np.save(partial / LOGITS, np.load(partial / LOGITS)[:, list(columns)])
        if weights:
            save_model(weights.model, str(partial / WEIGHTS))
    return TeacherOutputs.load(folder, unlabelled)


def record_teacher_tokens(
    teacher: LoadedModel, train: Data, folder: Path, *, growing: Path, texts: int | None, max_length: int
) -> TeacherOutputs:
    """Run the teacher on blocks of running text and write its likeliest tokens to a folder.

    `growing`: where they stand until they are complete; the same call resumes. `texts`: at most this many blocks.
    """
    inputs = build_inputs(teacher.tokenizer, train, max_length)
    assert isinstance(inputs, TextInputs)
    record_likeliest_tokens(teacher, inputs, growing, blocks=min(texts or len(inputs), len(inputs)))
    with atomic_folder(folder) as partial:
        for path in growing.iterdir():
            path.rename(partial / path.name)
    growing.rmdir()
    return TeacherOutputs.load(folder, None)


def load_teacher(untrained: LoadedModel, folder: Path) -> LoadedModel:
    """The model that subnetworks are cut from: a copy of the untrained one, with the weights in the folder."""
    teacher = replace(untrained, model=copy.deepcopy(untrained.model), head_is_trained=True)
    load_model(teacher.model, str(folder / WEIGHTS))
    teacher.fingerprint = compute_fingerprint(teacher.model)
    return teacher


def _run_teacher(teacher: LoadedModel, inputs: Inputs, folder: Path, *, states: bool) -> None:
    shape = (len(inputs), teacher.layers, teacher.model.config.hidden_size)
    with _array_file(folder / STATES if states and is_main_process() else Path(os.devnull), shape) as receive:
        logits = compute_logits(teacher, inputs, receive=receive if states else None, title="running the teacher")
    if is_main_process():
        np.save(folder / LOGITS, logits)


@contextmanager
def _array_file(path: Path, shape: tuple[int, int, int]) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:
    """An .npy file whose rows arrive in any order. Written, not memory-mapped: a full disk would kill the process."""
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
