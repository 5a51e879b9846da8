"""Memory that a long pass frees really goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def _trim() -> object:
    """glibc's malloc_trim, where there is one."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Activations of many shapes leave holes that glibc keeps: hundreds of MB over a long pass, none after this."""
    trim = _trim()
    if callable(trim):
        trim(0)
