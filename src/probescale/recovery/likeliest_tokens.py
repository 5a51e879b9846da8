"""A teacher's likeliest next tokens, computed once and kept on disk: ids and log-probabilities.

The probability of all other tokens counts as one. With 32 of them, a million tokens of text take 192 MB; other numbers
have not been compared yet.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter
from probescale.recovery.inputs import TextInputs, forward, select_rows
from probescale.utils.progress import progress

LIKELIEST = 32
IDS, LOG_PROBABILITIES = "ids.bin", "log_probabilities.bin"
TYPES = {IDS: np.dtype("<i4"), LOG_PROBABILITIES: np.dtype("<f2")}


@dataclass(frozen=True)
class LikeliestTokens:
    """The likeliest next tokens at every row, as they stand on disk."""

    ids: np.ndarray  # (rows, likeliest)
    log_probabilities: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> LikeliestTokens:
        ids, values = (_open(folder / name) for name in (IDS, LOG_PROBABILITIES))
        return cls(ids, values)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(rows, 2 x likeliest) ids, then log-probabilities; NaN for rows that the teacher did not see."""
        numbers = rows.numpy()
        answers = np.full((len(numbers), 2 * LIKELIEST), np.nan, np.float32)
        seen = numbers < len(self)
        answers[seen, :LIKELIEST] = self.ids[numbers[seen]]
        answers[seen, LIKELIEST:] = self.log_probabilities[numbers[seen]]
        return torch.from_numpy(answers)


def record_likeliest_tokens(teacher: LoadedModel, inputs: TextInputs, folder: Path, *, blocks: int) -> None:
    """Run the teacher on the first blocks, appending to the files of a folder. The same call resumes."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _resume(folder, inputs)
    with torch.inference_mode(), progress("running the teacher", blocks) as advance:
        advance(done)
        for numbers in _batches(inputs, done, blocks, teacher.model.config.vocab_size):
            parts = BatchSplitter().run(
                numbers,
                int(inputs.tokens.lengths[numbers].max()),
                lambda part, numbers=numbers: _run(teacher, inputs, numbers[part]),
                undo=lambda: None,
            )
            _append(folder, parts)
            advance(len(numbers))


def _run(teacher: LoadedModel, inputs: TextInputs, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and log-probabilities of the likeliest tokens, in the order of the rows."""
    logits, batch = forward(teacher.model, inputs.collate(teacher.tokenizer, [inputs[int(n)] for n in numbers]))
    logits, rows = select_rows(teacher, logits, batch)
    best = logits.float().topk(min(LIKELIEST, logits.shape[-1]), -1)
    values = best.values - logits.float().logsumexp(-1, keepdim=True)
    order = rows.argsort()
    return tuple(_fill(part[order].cpu().numpy(), empty) for part, empty in ((best.indices, 0), (values, -math.inf)))  # type: ignore[return-value]


def _fill(part: np.ndarray, empty: float) -> np.ndarray:
    """As many columns as are kept, where the vocabulary has fewer tokens."""
    missing = LIKELIEST - part.shape[1]
    return np.pad(part, ((0, 0), (0, missing)), constant_values=empty) if missing else part


def _batches(inputs: TextInputs, first: int, end: int, vocabulary: int) -> Iterator[np.ndarray]:
    """Numbers of blocks in their order, as many at a time as logits fit into memory."""
    size = max(inputs.batch_tokens(vocabulary) // max(int(inputs.tokens.lengths.max()), 1), 1)
    for start in range(first, end, size):
        yield np.arange(start, min(start + size, end))


def _append(folder: Path, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for name, arrays in zip((IDS, LOG_PROBABILITIES), zip(*parts, strict=True), strict=True):
        with (folder / name).open("ab") as file:
            for array in arrays:
                file.write(np.ascontiguousarray(array, TYPES[name]).data)
            file.flush()
            os.fsync(file.fileno())


def _resume(folder: Path, inputs: TextInputs) -> int:
    """The number of blocks that both files hold completely; what is beyond is cut off."""
    rows = min(
        ((folder / name).stat().st_size // (LIKELIEST * TYPES[name].itemsize) if (folder / name).exists() else 0)
        for name in TYPES
    )
    ends = inputs.block_ends
    blocks = int(np.searchsorted(ends, rows, "right"))
    complete = int(ends[blocks - 1]) if blocks else 0
    for name, kind in TYPES.items():
        with (folder / name).open("ab") as file:
            file.truncate(complete * LIKELIEST * kind.itemsize)
    return blocks


def _open(path: Path) -> np.ndarray:
    values = (
        np.fromfile(path, TYPES[path.name], 0) if not path.stat().st_size else np.memmap(path, TYPES[path.name], "r")
    )
    return values.reshape(-1, LIKELIEST)
