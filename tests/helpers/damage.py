"""Damage files as a failing disk does, and see which files of a folder stay as they are."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from probescale.config import RunConfig
from probescale.pipeline import run as pipeline

DAMAGES = ("emptied", "cut short", "a flipped bit")


def damage(path: Path, how: str) -> None:
    """Damage one file in place."""
    data = bytearray(path.read_bytes())
    if how == "emptied" or not data:
        data = bytearray() if data else bytearray(b"x")
    elif how == "cut short":
        data = data[: len(data) // 2]
    else:
        data[2 * len(data) // 3] ^= 1
    path.write_bytes(data)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Interrupted(BaseException):
    """Ends a run as a signal does."""


def run_until(module: ModuleType, name: str, calls: int, config: RunConfig, out: Path) -> Path:
    """The work folder of a run that is interrupted when this function of a module is called for the nth time."""
    real, seen = getattr(module, name), []

    def interrupt(*given, **named):
        seen.append(1)
        if len(seen) >= calls:
            raise Interrupted
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, interrupt)
        with pytest.raises(Interrupted):
            pipeline.run(config, out)
    return out.with_name(f"{out.name}.partial")
