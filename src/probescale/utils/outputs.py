"""Check, before any work, that an output can be written and replaces nothing of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from probescale.errors import UserError
from probescale.utils.ownership import refuse_strangers

Inputs = Iterable[str | Path]  # files and folders that a command reads; hub names among them do not matter


def check_output_file(
    path: Path,
    *,
    inputs: Inputs,
    overwrite: bool = False,
    is_own: Callable[[Path], bool] = lambda _: False,
    field: str = "--out",
) -> Path:
    """Refuse a path where no file can be written, an input, and without `overwrite` a file that exists.

    `is_own`: whether a file can only be an earlier output of the same command, which may always be replaced.
    """
    if path.is_dir() or (path.exists() and not path.is_file()) or path.is_symlink():
        raise UserError(f'"{path}" is not an ordinary file', field=field, hint="give the name of a file")
    for given in _existing(inputs):
        if path.exists() and (path.samefile(given) or given.resolve() in path.resolve().parents):
            raise UserError(f'"{path}" is what the command reads', field=field, hint="choose another name")
    if path.exists() and not overwrite and not is_own(path):
        raise UserError(f'"{path}" already exists', field=field, hint="choose another name, or add --overwrite")
    _check_parent(path, field)
    return path


def check_output_folder(path: Path, *, kind: str, inputs: Inputs, overwrite: bool, field: str = "--out") -> Path:
    """Refuse a path where no folder can be written, a folder with inputs, and a folder of someone else.

    A folder may be replaced if it is of the same kind and holds only what we wrote, or nothing.
    """
    path = path.resolve()
    if path.is_file():
        raise UserError(f'"{path}" is a file', field=field, hint="give the name of a folder")
    _check_parent(path, field)
    if path.exists() and not overwrite:
        raise UserError(f'"{path}" already exists', field=field, hint="choose another folder, or add --overwrite")
    refuse_inputs_inside(path, inputs, field=field)
    if path.exists() and any(path.iterdir()):
        refuse_strangers(path, kind, field=field)
    return path


def refuse_inputs_inside(folder: Path, inputs: Inputs, *, field: str = "--out") -> None:
    """Refuse a folder that is or contains what the command reads."""
    if not folder.exists():
        return
    for given in _existing(inputs):
        real = given.resolve()
        if real == folder or folder in real.parents:
            raise UserError(
                f'"{folder}" holds "{given}", which the command reads', field=field, hint="choose another folder"
            )


def _existing(inputs: Inputs) -> list[Path]:
    return [Path(given) for given in inputs if os.path.exists(given)]  # noqa: PTH110 - Path.exists raises on long names


def _check_parent(path: Path, field: str) -> None:
    """Refuse a path whose nearest existing parent is not a writable folder."""
    existing = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f'nothing can be written in "{existing}"', field=field, hint="choose another folder")
