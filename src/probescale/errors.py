"""Errors that people read: what is wrong, where, what is allowed, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from probescale.utils.sanitize import redact_secrets

T = TypeVar("T")
MAX_LENGTH = 2000  # characters of a message; a value that it quotes may be a megabyte


class ProbeScaleError(Exception):
    """Base of all errors that this package raises on purpose.

    >>> print(UserError("5 is more than the model's 4 layers", field="selection.k", hint="choose 1 to 4"))
    selection.k: 5 is more than the model's 4 layers
      next: choose 1 to 4
    """

    def __init__(self, message: str, *, field: str = "", hint: str = "") -> None:
        self.message = _shorten(redact_secrets(message))
        self.field, self.hint = _shorten(field), _shorten(redact_secrets(hint))
        super().__init__(self.message)

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.message}" + (f"\n  next: {self.hint}" if self.hint else "")


def _shorten(text: str) -> str:
    """The text, without its middle if it is too long."""
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH // 2]} ... {text[-MAX_LENGTH // 2 :]}"


class UserError(ProbeScaleError):
    """Bad input. The command line prints it without a traceback and exits with 2."""


class Unreachable(UserError):  # noqa: N818 - says what happened
    """A source that is not here, while the hub cannot be reached."""


class Diverged(UserError):  # noqa: N818 - says what happened
    """A training whose loss or weights are no longer finite numbers."""

    def __init__(self, message: str, *, rate: float) -> None:
        super().__init__(message, field="recovery.learning_rate", hint=f"choose one below {rate:g}")


class MachineError(ProbeScaleError):
    """The machine ran out of disk, memory or open files. Exit code 1; the same command resumes partial work."""


class Problems(UserError):  # noqa: N818 - a plural
    """Several user errors, reported together."""

    def __init__(self, problems: Iterable[UserError]) -> None:
        self.problems = list(problems)
        super().__init__(f"{len(self.problems)} problems")
        self.message = "\n".join(str(problem) for problem in self.problems)  # all of them, however long


UNSUPPORTED_HINT = "nothing was written; this architecture is not supported yet"


class ProofFailed(UserError):  # noqa: N818 - says what happened
    """A cut model whose outputs differ from the reference. Nothing is written."""

    def __init__(self, message: str, *, hint: str = UNSUPPORTED_HINT) -> None:
        super().__init__(message, field="proof", hint=hint)


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class name where the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean "top_k"?', or an empty text if no known name is similar."""
    similar = get_close_matches(name, list(known), n=1)
    return f' Did you mean "{similar[0]}"?' if similar else ""


def lookup(registry: Mapping[str, T], name: str, *, field: str) -> T:
    """The entry of a registry, or an error that lists its names."""
    if name in registry:
        return registry[name]
    raise UserError(
        f'"{name}" is not known.{did_you_mean(name, registry)}',
        field=field,
        hint=f"use one of: {', '.join(sorted(registry))}",
    )
