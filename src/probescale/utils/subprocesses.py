"""Commands for Python child processes that never import from the current folder, which may be an untrusted model or
dataset."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_ONLY_INSTALLED = "import sys; sys.path[:] = [path for path in sys.path if path]\n"  # "" is the current folder


PR_SET_PDEATHSIG = 1  # of prctl(2)


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, even by SIGKILL and even while this one is stopped. On Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)


def python_command(code: str, *arguments: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-c", _ONLY_INSTALLED + code, *arguments]


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a module, as `python -m` does, but without the current folder in its path."""
    return python_command(f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)", *arguments)
