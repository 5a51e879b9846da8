"""Write files and folders atomically: synced to the disk under a temporary name, then renamed."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import socket
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from probescale.errors import UserError, first_line
from probescale.utils.ownership import refuse_strangers, walk_files, write_manifest

R = TypeVar("R", bound="Record")
T = TypeVar("T")
AGAIN = "remove it, and run the same command again"
# Called with every complete file and folder just before it gets its final name: where it is, and what its name will be.
COMPLETED: list[Callable[[Path, Path], None]] = []


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
            raise UserError(f"{path} is damaged: {first_line(error)}", hint=AGAIN) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: to a temporary file, which then replaces the target."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a JSON file atomically."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, *, field: str = "", hint: str = "") -> Any:  # noqa: ANN401
    """The contents of a JSON file, or an error that names the field."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair could not be written again
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}", field=field, hint=hint) from error


def read_as(path: Path, kind: type[T]) -> T:
    """The contents of a JSON file as this type; an error says where a file is damaged that we wrote ourselves."""
    try:
        return TypeAdapter(kind).validate_python(read_json(path, hint=AGAIN))
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {first_line(error)}", hint=AGAIN) from error


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A temporary file that takes the target's name when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    partial = _temporary_path(target, "new")
    try:
        yield partial
        _complete(partial, target)
        partial.replace(target)
        sync_name(target)
    except OSError as error:
        error.filename = error.filename or str(target)  # the error of a full disk has no file name
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path, kind: str | None = None, also: Sequence[str] = ()) -> Iterator[Path]:
    """A temporary folder that takes the target's name when the block ends without an error.

    `kind`: what it is, where users see it: it gets a manifest of its files (ownership.py). `also`: files that follow.
    """
    remove_leftovers(target)
    partial = _temporary_path(target, "new")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if kind:
            write_manifest(partial, kind, also)
        _complete(partial, target)
        replace_folder(partial, target, kind)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _complete(partial: Path, target: Path) -> None:
    sync(partial)
    for notify in COMPLETED:
        notify(partial, target)


def sync(path: Path) -> None:
    """Wait until a file, or every file of a folder, is on the disk: a power cut after a rename leaves no empty file."""
    for file in walk_files(path) if path.is_dir() else (path,):
        _sync(file)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_name(path: Path) -> None:
    """Wait until the name of a file or folder is on the disk, where the file system can do that for a folder."""
    with suppress(OSError):
        _sync(path.parent)


def replace_folder(folder: Path, target: Path, kind: str | None = None) -> None:
    """Give the folder the target's name. A folder of that name stays complete until then.

    `kind`: of the folder that may be replaced; files that someone else put there meanwhile are never removed.
    """
    old = _temporary_path(target, "old")
    if target.exists():
        if kind and any(target.iterdir()):
            refuse_strangers(target, kind)
        target.rename(old)
    folder.rename(target)
    sync_name(target)
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(folder: Path, beside: Path | None = None, keep: Sequence[Path] = ()) -> None:
    """Remove a folder so that no part of it is ever left under its name, except for the files to keep.

    It is first renamed to a temporary name next to itself, or next to `beside`.
    """
    old = _temporary_path(beside or folder, "old")
    if folder.exists():
        folder.rename(old)
    for path in keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        (old / path.relative_to(folder)).rename(path)
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


def is_temporary(name: str) -> bool:
    """Whether a file name is one that atomic_file or atomic_folder uses until the work is complete."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}-\d+\.(new|old)\.tmp", name) is not None


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
