"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from probescale.cli.app import app as app
from probescale.errors import Problems, UserError
from probescale.processes import first, follow, leading, started

# isort: off
from probescale.cli import work  # --help lists commands in the order of these imports
from probescale.cli import studies
from probescale.cli import models
from probescale.cli import shipping
from probescale.cli import shelves
# isort: on

__all__ = ["app", "main", "models", "shelves", "shipping", "studies", "work"]


def _fail(error: UserError) -> NoReturn:
    from probescale.progress import PlainConsole

    console = PlainConsole(stderr=True)
    problems = error.problems if isinstance(error, Problems) else [error]
    if len(problems) > 1:
        console.print(f"{len(problems)} problems", style="bold red")
    for problem in problems:
        console.print("error: ", style="bold red", end="")
        console.print(str(problem), soft_wrap=True)
    raise SystemExit(2)


def main() -> None:
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would fill a log file
    if started() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would speak of itself in every process
    try:
        if first():
            with leading():
                app()
        else:
            follow()
    except UserError as error:
        _fail(error)
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        _fail(UserError(f"{where}{error.strerror}", hint="check the path, the permissions and the disk"))
