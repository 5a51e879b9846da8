"""Progress on stderr: bars and spinners on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from probescale.errors import UserError
from probescale.utils.files import read_as, write_json
from probescale.utils.sanitize import escape_controls


class PlainConsole(Console):
    """A console that prints untrusted text safely: no markup, no control characters."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - rich's own
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401
        return super().render_str(escape_controls(text), **options)


console = PlainConsole(stderr=True)
SECONDS_BETWEEN_LINES = 60.0  # in a log
_live: list[Progress] = []  # the bars of the whole, which those of its parts join


class _Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.1f}/s" if speed else "", style="progress.data.speed")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar; yields a function to call with the number of items done since its last call.

    Off a terminal, a line appears from time to time, so that a log is never silent for long.
    """
    if not console.is_terminal:
        yield _Lines(title, total).advance
        return
    with nullcontext(_live[-1]) if _live else _bars() as bar:
        task = bar.add_task(title, total=total)
        try:
            yield lambda done: bar.advance(task, done)
        finally:
            bar.remove_task(task)


def _bars() -> Progress:
    columns = (
        TextColumn("{task.description:<28}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)


class _Lines:
    """Progress where there is no terminal: a line per minute of work."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.started = self.told = time.monotonic()

    def advance(self, done: int) -> None:
        self.done += done
        now = time.monotonic()
        if now - self.told >= SECONDS_BETWEEN_LINES and self.done < self.total:
            self.told = now
            console.print(f"  {self.title}: {self.done:,} of {self.total:,} ({format_duration(now - self.started)})")


class Phases:
    """The phases of a long piece of work: a bar for the whole on a terminal, else a line for each phase."""

    def __init__(self, expected: Mapping[str, float], path: Path | None = None, started: float | None = None) -> None:
        """`expected`: seconds of every phase, in the order of the work. `path`: a file that keeps what each phase took,
        so that time that was spent before an interruption counts. `started`: by the clock time.monotonic()."""
        self.expected, self.path = dict(expected), path
        self.took: dict[str, float] = read_as(path, dict[str, FiniteFloat]) if path and path.exists() else {}
        self.before, self.started = sum(self.took.values()), time.monotonic() if started is None else started

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the whole while the block lasts."""
        if not console.is_terminal:
            yield
            return
        with _bars() as bar:
            self.bar, self.whole = bar, bar.add_task("the whole", total=sum(self.expected.values()))
            _live.append(bar)
            try:
                yield
            finally:
                _live.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase; a name that comes again adds to its time."""
        begin = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begin
            self.took[name] = self.took.get(name, 0.0) + seconds
            if self.path and self.path.parent.parent.exists():
                self.path.parent.mkdir(exist_ok=True)
                write_json(self.path, {name: round(took, 1) for name, took in self.took.items()})
        if console.is_terminal and hasattr(self, "bar"):
            self.bar.update(self.whole, completed=sum(self.expected.get(done, 0.0) for done in self.took))
        else:
            console.print(f"{name}: {format_duration(seconds)}")

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, those before an interruption included."""
        return self.before + time.monotonic() - self.started

    @property
    def slower(self) -> float:
        """How many times as long as expected the phases took so far. One that was done elsewhere takes no time."""
        done = [name for name, took in self.took.items() if took > 0.1 * self.expected.get(name, 0.0) > 0]
        expected = sum(self.expected[name] for name in done)
        return sum(self.took[name] for name in done) / expected if done else 1.0


def format_duration(seconds: float) -> str:
    """A duration as people say it.

    >>> format_duration(7.2), format_duration(95), format_duration(5400)
    ('7s', '1m 35s', '1h 30m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


def parse_time(text: str) -> float:
    """Seconds of a duration.

    >>> parse_time("30m"), parse_time("1.5h"), parse_time("90s")
    (1800.0, 5400.0, 90.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([smh])\s*", text)
    if match is None or float(match[1]) <= 0:
        raise UserError(f'"{text}" is not a duration', field="time", hint="write 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """A spinner, for a step of unknown duration."""
    if not console.is_terminal or _live:  # rich shows one live display at a time
        yield
        return
    with console.status(Text(title)):
        yield
