"""Commands for Python child processes that never import from the current folder, which may be an untrusted model or
dataset."""

from __future__ import annotations

import sys

_ONLY_INSTALLED = "import sys; sys.path[:] = [path for path in sys.path if path]\n"  # "" is the current folder


def python_command(code: str, *arguments: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-c", _ONLY_INSTALLED + code, *arguments]


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a module, as `python -m` does, but without the current folder in its path."""
    return python_command(f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)", *arguments)
