"""Save memory: split batches that do not fit, and return freed memory to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import torch

from probescale.errors import MachineError
from probescale.utils.progress import console
from probescale.utils.resources import MEMORY_HINT, is_out_of_memory

T = TypeVar("T")


class BatchSplitter:
    """Splits batches into parts: one part, until memory runs out; then twice as many, for all later batches."""

    def __init__(self) -> None:
        self.count = 1

    def run(
        self,
        texts: Sequence[int] | np.ndarray,  # indices, from 0, of the batch's texts
        tokens: int,  # of each text, with padding
        work: Callable[[slice], T],
        undo: Callable[[], None] = lambda: None,
    ) -> list[T]:
        """The results of `work` for every part, in order. When memory runs out: `undo`, and begin the batch again."""
        while True:
            part, results = slice(0, 0), list[T]()
            try:
                for part in self._parts(len(texts)):
                    results.append(work(part))
                return results
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if part.stop - part.start <= 1:
                    raise _too_long(int(texts[part.start]) + 1, tokens) from error
            # Outside of the handler: there, the error still holds what was computed.
            results.clear()
            undo()
            release_memory()
            self.count *= 2
            _announce()

    def _parts(self, size: int) -> list[slice]:
        step = -(-size // self.count)
        return [slice(first, min(first + step, size)) for first in range(0, size, step)]


@cache
def _announce() -> None:
    """Tell the user, once per process."""
    console.print("note: not enough memory for a full batch; batches are split into parts from here on")


def _too_long(text: int, tokens: int) -> MachineError:
    return MachineError(
        f"there is not enough memory for text {text} alone, {tokens} tokens with padding",
        field="model.max_length",
        hint=MEMORY_HINT,
    )


@cache
def _malloc_trim() -> object:
    """glibc's malloc_trim, where it exists."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def release_memory() -> None:
    """Return freed memory to the system: activations of many shapes leave gaps that glibc keeps, hundreds of MB."""
    trim = _malloc_trim()
    if callable(trim):
        trim(0)
    torch.cuda.empty_cache()  # does nothing without a GPU
