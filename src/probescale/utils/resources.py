"""Recognise that the machine ran out of disk, memory or open files, in whatever way a library reports it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probescale.errors import MachineError, ProbeScaleError, Problems

_SPACE = "free some space, there and in the folder for temporary files"
_FILES = "raise the limit of open files (ulimit -n), or close other programs"
MEMORY_HINT = "close other programs, or make model.max_length, probing.batch_tokens or recovery.batch_size smaller"
MESSAGES = {  # errno -> what happened, what to do
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("the disk quota is used up", _SPACE),
    errno.EFBIG: ("a file would exceed the size limit", "raise the limit (ulimit -f), or use another disk"),
    errno.EMFILE: ("too many files are open", _FILES),
    errno.ENFILE: ("too many files are open on this machine", _FILES),
    errno.EIO: ("the disk fails to read or write", "check the disk"),
    errno.ENOMEM: ("there is not enough memory", MEMORY_HINT),
}
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ERRNO_IN_TEXT = (  # as Arrow, safetensors and tokenizers, PyTorch write it
    re.compile(r"\[errno (\d+)\]", re.IGNORECASE),
    re.compile(r"\(os error (\d+)\)"),
    re.compile(r"unable to .*: [A-Z][a-z ]+ \((\d+)\)"),
)
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # NumPy's only sign of a full disk
_NO_MEMORY = re.compile(
    "DefaultCPUAllocator: |out of memory|Failed to allocate memory|bad_alloc|bad allocation|can't start new thread"
    "|could not create a primitive"  # oneDNN, on some processors
)


def find_shortage(error: BaseException, place: Path | None = None) -> MachineError | None:
    """A MachineError if this error, or its cause, means that the machine ran out of something; else None.

    `place`: the path to name for a full disk, unless the error names one.
    """
    if isinstance(error, MachineError):
        return error
    number = find_errno(error)
    if number in MESSAGES:
        message, hint = MESSAGES[number]
        path = getattr(error, "filename", None) or (place if number != errno.ENOMEM else None)
        return MachineError(f"{path}: {message}" if path else message, hint=hint)
    causes = error.problems if isinstance(error, Problems) else [error.__cause__] if error.__cause__ else []
    return next((shortage for cause in causes if (shortage := find_shortage(cause, place))), None)


@contextmanager
def report_shortage(place: Path) -> Iterator[None]:
    """While this path is written to, raise errors of a full disk or memory as MachineError, whatever the library."""
    try:
        yield
    except Exception as error:
        shortage = find_shortage(error, place)
        if shortage is None or shortage is error:
            raise
        raise shortage from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy, PyTorch (CPU or GPU) or ONNX Runtime could not allocate memory."""
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


def find_errno(error: BaseException) -> int | None:
    """The errno behind an error, if it has one. Our own messages are not searched: they quote user input."""
    if isinstance(error, ProbeScaleError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if is_out_of_memory(error):
        return errno.ENOMEM
    if isinstance(error, OSError) and _SHORT_WRITE.search(str(error)):
        return errno.ENOSPC
    return next((int(match[1]) for pattern in _ERRNO_IN_TEXT if (match := pattern.search(str(error)))), None)
