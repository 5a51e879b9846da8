"""Damage files as a failing disk does, and see which files of a folder stay as they are."""

from __future__ import annotations

from pathlib import Path

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
