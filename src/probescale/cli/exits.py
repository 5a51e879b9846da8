"""How a command ends early: one message, no traceback, and an exit code.

1: the machine ran out of something, or a training failed. 2: the input is wrong. 128 and the signal's number: it was
stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from probescale.errors import MachineError, ProbeScaleError, Problems, UserError
from probescale.utils.distributed import is_main_process
from probescale.utils.resources import find_shortage
from probescale.utils.signals import Stopped, stop_on_signals

RESUMABLE = {"compress", "run", "smallest", "probe", "study"}
RESUME = "run the same command to resume"


@contextmanager
def explain_early_end() -> Iterator[None]:
    """Turn an error or a signal into one message on stderr and the right exit code."""
    try:
        with stop_on_signals():
            yield
    except Stopped as stop:
        with suppress(OSError):  # the terminal may be closed
            if is_main_process():
                print(
                    f"stopped; {RESUME if _is_resumable() else 'nothing unfinished is left'}",
                    file=sys.stderr,
                    flush=True,
                )
        raise SystemExit(stop.code) from None
    except Exception as error:
        problem = find_shortage(error) or _as_user_error(error)
        if problem is None:
            raise
        if isinstance(problem, MachineError):
            after = RESUME if _is_resumable() else "run the same command again"
            problem = MachineError(problem.message, field=problem.field, hint=f"{problem.hint}; then {after}")
        with suppress(OSError):
            _print_error(problem)
        raise SystemExit(1 if isinstance(problem, MachineError) else 2) from None


def _is_resumable() -> bool:
    return sys.argv[1:2] != [] and sys.argv[1] in RESUMABLE


def _as_user_error(error: Exception) -> UserError | None:
    """The error as something that the user can correct; None for a fault of the program."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return UserError(f"{where}{error.strerror}", hint="check the path, the permissions and the disk")
    return None


def _print_error(error: ProbeScaleError) -> None:
    from probescale.utils.progress import PlainConsole

    console = PlainConsole(stderr=True)
    problems = error.problems if isinstance(error, Problems) else [error]
    if len(problems) > 1:
        console.print(f"{len(problems)} problems", style="bold red")
    for problem in problems:
        console.print("error: ", style="bold red", end="")
        console.print(str(problem), soft_wrap=True)
