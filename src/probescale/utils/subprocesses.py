"""Python in a process of its own that does not look for modules in the folder where the command was given: it may be a
model's or a data set's, and nothing in those is ever run."""

from __future__ import annotations

import sys

_ONLY_INSTALLED = "import sys; sys.path[:] = [place for place in sys.path if place]\n"  # "": the current folder


def python_command(code: str, *words: str) -> list[str]:
    """The command that runs code."""
    return [sys.executable, "-c", _ONLY_INSTALLED + code, *words]


def module_command(name: str, *words: str) -> list[str]:
    """As `python_command -m name`, which would look in the current folder first."""
    return python_command(f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)", *words)
