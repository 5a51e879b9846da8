"""Signals that end a command: Ctrl-C, a polite kill, a closed terminal. All of them let it tidy up first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class Stopped(BaseException):
    """Raised wherever the program is. Not a KeyboardInterrupt: libraries would take that for themselves."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number  # as a shell counts


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Signals raise Stopped while the block lasts. What is ignored stays so: `nohup` does that to SIGHUP."""
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
    """The second signal of a kind ends the program at once; others do not disturb the tidying."""
    for other in SIGNALS:
        signal.signal(other, signal.SIG_DFL if other == number else signal.SIG_IGN)
    raise Stopped(number)
