"""What a machine runs out of: disk, memory, open files. Libraries say so in ways of their own."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probescale.errors import MachineError, ProbeScaleError, Problems

_SPACE = "free some space, there and where temporary files go"
_FILES = "raise the limit of open files (ulimit -n), or close other programs"
MEMORY_HINT = "close other programs, or make model.max_length, probing.batch_tokens or recovery.batch_size smaller"
MESSAGES = {  # error number -> what happened, what to do
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("the disk quota is used up", _SPACE),
    errno.EFBIG: ("a file would be larger than files may be here", "raise that limit (ulimit -f), or use another disk"),
    errno.EMFILE: ("too many files are open", _FILES),
    errno.ENFILE: ("too many files are open on this machine", _FILES),
    errno.EIO: ("the disk does not take or give what it should", "check the disk"),
    errno.ENOMEM: ("there is not enough memory", MEMORY_HINT),
}
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_IN_WORDS = (  # of Arrow, of safetensors and tokenizers, of PyTorch
    re.compile(r"\[errno (\d+)\]", re.IGNORECASE),
    re.compile(r"\(os error (\d+)\)"),
    re.compile(r"unable to .*: [A-Z][a-z ]+ \((\d+)\)"),
)
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")  # all that NumPy says of it
_NO_MEMORY = re.compile(
    "DefaultCPUAllocator: |out of memory|Failed to allocate memory|bad_alloc|bad allocation|can't start new thread"
)


def find_shortage(error: BaseException, place: Path | None = None) -> MachineError | None:
    """The same in our words, if the machine ran out of something, or if that is what led to the error.

    `place`: where the disk is full, unless the error knows better.
    """
    if isinstance(error, MachineError):
        return error
    number = find_errno(error)
    if number in MESSAGES:
        what, hint = MESSAGES[number]
        where = getattr(error, "filename", None) or (place if number != errno.ENOMEM else None)
        return MachineError(f"{where}: {what}" if where else what, hint=hint)
    behind = error.problems if isinstance(error, Problems) else [error.__cause__] if error.__cause__ else []
    return next((short for one in behind if (short := find_shortage(one, place))), None)


@contextmanager
def report_shortage(place: Path) -> Iterator[None]:
    """What runs short while this place is written to is told as such, whatever a library makes of it."""
    try:
        yield
    except Exception as error:
        short = find_shortage(error, place)
        if short is None or short is error:
            raise
        raise short from error


def is_out_of_memory(error: BaseException) -> bool:
    """Python, NumPy, PyTorch on a CPU or GPU, ONNX Runtime: there was no memory for what was asked."""
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


def find_errno(error: BaseException) -> int | None:
    """The system's number of an error. Our own messages are not searched: they quote what users wrote."""
    if isinstance(error, ProbeScaleError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if is_out_of_memory(error):
        return errno.ENOMEM
    if isinstance(error, OSError) and _CUT_SHORT.search(str(error)):
        return errno.ENOSPC
    return next((int(said[1]) for words in _IN_WORDS if (said := words.search(str(error)))), None)
