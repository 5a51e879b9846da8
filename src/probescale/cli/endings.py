"""How a command ends early: one message, no traceback, and an exit code.

1: the machine ran out of something. 2: the input is wrong. 128 and the signal's number: it was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from probescale.errors import MachineError, ProbeScaleError, Problems, UserError
from probescale.utils.distributed import is_main_process
from probescale.utils.resources import find_shortage
from probescale.utils.signals import Stopped, stop_on_signals

LONG = ("run", "smallest", "probe", "study")  # what they did is kept, and not done again
GOES_ON = "the same command goes on from here"


@contextmanager
def explain_early_end() -> Iterator[None]:
    """Turn an error or a signal into one message on stderr and the right exit code."""
    try:
        with stop_on_signals():
            yield
    except Stopped as stop:
        with suppress(OSError):  # of a closed terminal, nobody listens any more
            if is_main_process():
                print(f"stopped; {GOES_ON if _is_long() else 'nothing half done is left'}", file=sys.stderr, flush=True)
        raise SystemExit(stop.code) from None
    except Exception as error:
        found = find_shortage(error) or _wrong(error)
        if found is None:
            raise
        if isinstance(found, MachineError):
            after = GOES_ON if _is_long() else "run the same command again"
            found = MachineError(found.message, field=found.field, hint=f"{found.hint}; then {after}")
        with suppress(OSError):
            _say(found)
        raise SystemExit(1 if isinstance(found, MachineError) else 2) from None


def _is_long() -> bool:
    return sys.argv[1:2] != [] and sys.argv[1] in LONG


def _wrong(error: Exception) -> UserError | None:
    """What the user can set right; None for a fault of ours."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return UserError(f"{where}{error.strerror}", hint="check the path, the permissions and the disk")
    return None


def _say(error: ProbeScaleError) -> None:
    from probescale.utils.progress import PlainConsole

    console = PlainConsole(stderr=True)
    problems = error.problems if isinstance(error, Problems) else [error]
    if len(problems) > 1:
        console.print(f"{len(problems)} problems", style="bold red")
    for problem in problems:
        console.print("error: ", style="bold red", end="")
        console.print(str(problem), soft_wrap=True)
