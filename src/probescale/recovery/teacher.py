"""What a teacher says of the training inputs, labelled or not: asked once, for all students."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probescale.files import whole_folder
from probescale.models.loading import LoadedModel
from probescale.recovery.inputs import Data, inputs_of
from probescale.recovery.predict import answers_of
from probescale.recovery.states import means, watched
from probescale.subsets import Subset
from probescale.tasks.unlabelled import joined


@dataclass(frozen=True)
class Lessons:
    """Further inputs without labels, and what the teacher makes of the labelled ones and then of these."""

    unlabelled: Data | None
    answers: np.ndarray  # (rows, classes) logits; NaN for words that the teacher did not see
    states: np.ndarray | None  # (inputs, layers, hidden) the mean over the tokens

    @classmethod
    def load(cls, folder: Path, unlabelled: Data | None) -> Lessons:
        states = folder / "states.npy"
        kept = np.load(states, mmap_mode="r") if states.exists() else None
        return cls(unlabelled, np.load(folder / "answers.npy"), kept)

    def states_for(self, kept: Subset) -> np.ndarray | None:
        """What the states of a student with these layers should become: its last layer does the work of the last."""
        if self.states is None:
            return None
        return self.states[:, [*(layer - 1 for layer in kept[:-1]), -1]]


def teach(
    teacher: LoadedModel,
    train: Data,
    unlabelled: Data | None,
    folder: Path,
    *,
    states: bool = False,
    max_length: int = 128,
    batch_tokens: int = 2048,
) -> Lessons:
    """Ask the teacher about everything, and keep its answers in a folder; its states too where they are wanted."""
    inputs = inputs_of(teacher, joined(train, unlabelled), max_length)
    blocks = list(teacher.family.layers(teacher.model))
    with whole_folder(folder) as partial, watched(blocks) as seen:
        table: np.ndarray | None = None
        if states:
            shape = (len(inputs), len(blocks), teacher.model.config.hidden_size)
            table = np.lib.format.open_memmap(partial / "states.npy", "w+", np.float32, shape)

        def note(batch: dict) -> None:
            if table is not None:
                table[batch["number"].cpu().numpy()] = means(seen, batch["attention_mask"]).float().cpu().numpy()

        answers = answers_of(teacher, inputs, batch_tokens=batch_tokens, title="asking the teacher", note=note)
        np.save(partial / "answers.npy", answers)
        if table is not None:
            table.flush()  # type: ignore[attr-defined] - a memmap
    return Lessons.load(folder, unlabelled)
