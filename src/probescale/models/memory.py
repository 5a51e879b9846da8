"""Memory: what a long pass frees goes back to the system, and a batch that does not fit is worked through in parts."""

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
    """Into how many parts a batch is cut: one, until memory runs out; then twice as many, from there on."""

    def __init__(self) -> None:
        self.count = 1

    def run(
        self,
        texts: Sequence[int] | np.ndarray,  # of the batch: their numbers, from 0
        tokens: int,  # of each of them, padded
        work: Callable[[slice], T],
        undo: Callable[[], None] = lambda: None,
    ) -> list[T]:
        """What `work` makes of every part, in order. Where memory runs out, the batch is undone and begun again."""
        while True:
            part, found = slice(0, 0), list[T]()
            try:
                for part in self._parts(len(texts)):
                    found.append(work(part))
                return found
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if part.stop - part.start <= 1:
                    raise _too_long(int(texts[part.start]) + 1, tokens) from error
            # Only here: while it is handled, the error holds what was computed until then.
            found.clear()
            undo()
            release_memory()
            self.count *= 2
            _tell()

    def _parts(self, size: int) -> list[slice]:
        step = -(-size // self.count)
        return [slice(first, min(first + step, size)) for first in range(0, size, step)]


@cache
def _tell() -> None:
    """Once."""
    console.print("memory is too small for a whole batch: batches are worked through in parts from here on")


def _too_long(text: int, tokens: int) -> MachineError:
    return MachineError(
        f"there is not enough memory for text {text} alone, {tokens} tokens with its padding",
        field="model.max_length",
        hint=MEMORY_HINT,
    )


@cache
def _trim() -> object:
    """glibc's malloc_trim, where there is one."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def release_memory() -> None:
    """Activations of many shapes leave holes that glibc keeps: hundreds of MB over a long pass, none after this."""
    trim = _trim()
    if callable(trim):
        trim(0)
    torch.cuda.empty_cache()  # nothing where there is no GPU
