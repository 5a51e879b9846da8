"""Unpack untrusted archives safely: nothing outside the target, and not much more data than the archive itself."""

from __future__ import annotations

import gzip
import io
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from probescale.errors import UserError, first_line
from probescale.utils.files import format_size

MAX_RATIO = 100  # of unpacked to packed size: text compresses about tenfold, weights hardly at all
ALWAYS_ALLOWED = 100_000_000  # unpacked bytes, whatever the ratio
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the only ones in wheels


def max_unpacked_size(archive: Path) -> int:
    """The most bytes that an archive may unpack to."""
    return max(MAX_RATIO * archive.stat().st_size, ALWAYS_ALLOWED)


def read_gzip(path: Path) -> bytes:
    """The unpacked contents; a ValueError where they are too large."""
    most = max_unpacked_size(path)
    with gzip.open(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        size = format_size(most)
        raise ValueError(f"it unpacks to more than {size}, {MAX_RATIO} times its own size; unpack it yourself")
    return data


def open_unpacked(path: Path) -> BinaryIO:
    """A file opened for reading, gzipped or not; a ValueError where it unpacks to too much."""
    return io.BytesIO(read_gzip(path)) if path.suffix == ".gz" else path.open("rb")


def unpack(archive: Path, inner: str, target: Path, *, field: str) -> None:
    """Extract one file or folder from a zip; the target is either complete or absent."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [m for m in opened.infolist() if m.filename == inner or m.filename.startswith(f"{inner}/")]
            if not members:
                raise UserError(
                    f'"{inner}" is not in {archive.name}', field=field, hint="list it with `python -m zipfile -l`"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            _check(members, archive, shutil.disk_usage(target.parent).free, field=field)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                for member in members:
                    opened.extract(member, scratch)  # stops at the declared size, and compares the checksum
                (Path(scratch) / inner).rename(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"{archive.name} cannot be unpacked: {first_line(error)}",
            field=field,
            hint="check the disk, or ask its author for an intact file",
        ) from error


def _check(members: Sequence[zipfile.ZipInfo], archive: Path, free: int, *, field: str) -> None:
    """Before anything is written, refuse paths that lead out of the folder, links, and too much data."""
    for member in members:
        parts = member.filename.removesuffix("/").split("/")
        if "\\" in member.filename or any(part in ("", ".", "..") for part in parts):
            raise UserError(f'{archive.name} has "{member.filename}", which leads out of its folder', field=field)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise UserError(f'{archive.name} has "{member.filename}", a link', field=field, hint="links are refused")
        if member.compress_type not in COMPRESSIONS:
            raise UserError(
                f'{archive.name} has "{member.filename}" in a compression that wheels do not use', field=field
            )
    size, most = sum(member.file_size for member in members), max_unpacked_size(archive)
    if size > most:
        raise UserError(
            f"{archive.name} is {format_size(archive.stat().st_size)} and would unpack to {format_size(size)}",
            field=field,
            hint=f"the limit is {MAX_RATIO} times its own size; unpack it yourself, and give the local path",
        )
    if size > free:
        raise UserError(
            f"{archive.name} would unpack to {format_size(size)}, and {format_size(free)} are free", field=field,
            hint="free some space, or set PROBESCALE_CACHE to another disk",
        )  # fmt: skip
