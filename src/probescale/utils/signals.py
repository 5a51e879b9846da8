"""Signals that stop a command (Ctrl-C, kill, a closed terminal), and let it clean up first.

A signal raises Stopped wherever the main thread is: a flag that loops look at would not end a read that waits, or a
long call of a library. Such an exception can get lost, in a `__del__`, in a callback, or in a library that catches
everything. So a timer raises it again until it arrives here, unless the program is cleaning up because of it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
SECONDS_BETWEEN = 0.2  # raising it and raising it again


class Stopped(BaseException):
    """Raised in the main thread by a signal. Not a KeyboardInterrupt, which some libraries catch."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number  # the shell's exit code for a signal


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside this context, signals raise Stopped. Ignored signals stay ignored, as SIGHUP is under `nohup`."""
    stop = _Stop()
    try:
        yield
    except BaseException as error:
        if stop.number is None or isinstance(error, Stopped):
            raise
        raise Stopped(stop.number) from error  # whatever a library made of it
    finally:
        stop.restore()
    if stop.number is not None:
        raise Stopped(stop.number)  # it got lost, and the work was done before it could be raised again


class _Stop:
    """Handles the first signal; remembers what handled signals before."""

    def __init__(self) -> None:
        self.number: int | None = None  # of the signal that came
        self.timer = (0.0, 0.0)  # of this process, before ours
        self.unraisable = sys.unraisablehook
        handled = {number: signal.getsignal(number) for number in SIGNALS}
        self.handlers = {number: handler for number, handler in handled.items() if handler != signal.SIG_IGN}
        for number in self.handlers:
            signal.signal(number, self._begin)
        sys.unraisablehook = self._report_unraisable

    def restore(self) -> None:
        """Handle signals as before."""
        if self.number is not None and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, *self.timer)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = self.unraisable

    def _begin(self, number: int, _frame: FrameType | None) -> None:
        """Raise Stopped. A second signal of this kind, or Ctrl-C, ends the program at once; others are ignored."""
        self.number = number
        for other in self.handlers:
            signal.signal(other, signal.SIG_DFL if other in (number, signal.SIGINT) else signal.SIG_IGN)
        if hasattr(signal, "setitimer"):
            self.handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._raise_again)
            self.timer = signal.setitimer(signal.ITIMER_REAL, SECONDS_BETWEEN, SECONDS_BETWEEN)
        raise Stopped(number)

    def _raise_again(self, _number: int, _frame: FrameType | None) -> None:
        if self.number is not None and not _is_stopping(sys.exc_info()[1]):
            raise Stopped(self.number)

    def _report_unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """Print an exception that got lost, as Python does; but not Stopped, which is raised again."""
        if not isinstance(lost.exc_value, Stopped):
            self.unraisable(lost)


def _is_stopping(error: BaseException | None) -> bool:
    """Whether this exception, which is being handled, or one that was handled before it, is Stopped."""
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None
