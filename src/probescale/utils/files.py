"""Write files and folders atomically, and never replace what this package did not write."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import socket
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import BaseModel, ConfigDict

from probescale.errors import UserError, first_line

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """A frozen result that saves to and loads from plain JSON."""

    model_config = ConfigDict(frozen=True)

    def save(self, path: Path) -> None:
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls: type[R], path: Path) -> R:
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(
                f"{path} is damaged: {first_line(error)}",
                hint="remove it, and run the same command again",
            ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: to a temporary file, which then replaces the target."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a JSON file atomically."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, *, field: str) -> Any:  # noqa: ANN401
    """The contents of a JSON file, or an error that names the field."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair could not be written again
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}", field=field) from error


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A temporary file that takes the target's name when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    partial = _temporary_path(target, "new")
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        error.filename = error.filename or str(target)  # the error of a full disk has no file name
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that takes the target's name when the block ends without an error."""
    remove_leftovers(target)
    partial = _temporary_path(target, "new")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        replace_folder(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def replace_folder(folder: Path, target: Path) -> None:
    """Give the folder the target's name. A folder of that name stays complete until then."""
    old = _temporary_path(target, "old")
    if target.exists():
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(folder: Path, beside: Path | None = None) -> None:
    """Remove a folder so that no part of it is ever left under its name.

    It is first renamed to a temporary name next to itself, or next to `beside`.
    """
    old = _temporary_path(beside or folder, "old")
    if folder.exists():
        folder.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def remove_leftovers(target: Path) -> None:
    """Remove temporary files and folders of the target that killed processes left behind."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.{HOST}-*.tmp"):
        process = path.name.rsplit("-", 1)[1].split(".")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"  # several machines may share a folder


def _temporary_path(target: Path, purpose: str) -> Path:
    """A hidden name next to the target that other processes and machines do not use."""
    return target.with_name(f".{target.name}.{HOST}-{os.getpid()}.{purpose}.tmp")


def check_output_file(path: Path, *, overwrite: bool = True, field: str = "--out") -> Path:
    """Refuse, before any work, a path where no file can be written."""
    if path.exists() and not overwrite:
        raise UserError(f'"{path}" already exists', field=field, hint="choose another name, or add --overwrite")
    if path.exists() and not (path.is_file() and not path.is_symlink()):
        raise UserError(f'"{path}" is not an ordinary file', field=field, hint="give the name of a file")
    _check_parent(path, field)
    return path


def check_output_folder(path: Path, *, overwrite: bool, markers: Sequence[str], field: str = "--out") -> Path:
    """Refuse, before any work, a path where no folder can be written, and to replace a folder of someone else.

    A folder may be replaced if it holds all the marker files, or nothing.
    """
    path = path.resolve()
    if path.is_file():
        raise UserError(f'"{path}" is a file', field=field, hint="give the name of a folder")
    _check_parent(path, field)
    if path.exists() and not overwrite:
        raise UserError(f'"{path}" already exists', field=field, hint="choose another folder, or add --overwrite")
    missing = [name for name in markers if not (path / name).is_file()]
    if path.exists() and any(path.iterdir()) and missing:
        raise UserError(
            f'"{path}" has no {missing[0]}: it was not written by this command, and is left alone',
            field=field,
            hint="choose another folder",
        )
    return path


def _check_parent(path: Path, field: str) -> None:
    """Refuse a path whose nearest existing parent is not a writable folder."""
    existing = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f'nothing can be written in "{existing}"', field=field, hint="choose another folder")


def file_sha256(path: Path) -> str:
    """The sha256 of a file's contents, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def format_size(size: float) -> str:
    """A number of bytes for people.

    >>> format_size(1_234_567)
    '1.2 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
