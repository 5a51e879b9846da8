"""Signals that stop a command (Ctrl-C, kill, a closed terminal), and let it clean up first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class Stopped(BaseException):
    """Raised in the main thread by a signal. Not a KeyboardInterrupt, which some libraries catch."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number  # the shell's exit code for a signal


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside this context, signals raise Stopped. Ignored signals stay ignored, as SIGHUP is under `nohup`."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Raise Stopped. A second signal of this kind ends the program at once; others are ignored during cleanup."""
    for other in SIGNALS:
        signal.signal(other, signal.SIG_DFL if other == number else signal.SIG_IGN)
    raise Stopped(number)
