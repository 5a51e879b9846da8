"""What may come out of an archive: nothing outside of its place, and no more than an honest one holds."""

from __future__ import annotations

import gzip
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from probescale.errors import UserError, first_line
from probescale.utils.files import format_size

MAX_RATIO = 100  # as large as the archive itself: text becomes ten times smaller, weights hardly at all
ALWAYS_ALLOWED = 100_000_000  # bytes that are never too many
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of packing; wheels know no other


def max_unpacked_size(archive: Path) -> int:
    """Bytes that an archive of this size may hold."""
    return max(MAX_RATIO * archive.stat().st_size, ALWAYS_ALLOWED)


def read_gzip(path: Path) -> bytes:
    """All of it; a ValueError where it does not end."""
    most = max_unpacked_size(path)
    with gzip.open(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        size = format_size(most)
        raise ValueError(f"it unpacks to more than {size}, {MAX_RATIO} times its own size; unpack it yourself")
    return data


def unpack(archive: Path, inner: str, target: Path, *, field: str) -> None:
    """Take one file or one folder out of a zip; the target is complete or not there."""
    try:
        with zipfile.ZipFile(archive) as opened:
            found = [one for one in opened.infolist() if one.filename == inner or one.filename.startswith(f"{inner}/")]
            if not found:
                raise UserError(
                    f'"{inner}" is not in {archive.name}', field=field, hint="list it with `python -m zipfile -l`"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            _check(found, archive, shutil.disk_usage(target.parent).free, field=field)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                for one in found:
                    opened.extract(one, scratch)  # stops at the size that was declared, and compares the checksum
                (Path(scratch) / inner).rename(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"{archive.name} cannot be unpacked: {first_line(error)}",
            field=field,
            hint="check the disk, or ask its author for a sound one",
        ) from error


def _check(members: Sequence[zipfile.ZipInfo], archive: Path, free: int, *, field: str) -> None:
    """Refuse, before anything is written, names that lead elsewhere, links, and more than there can honestly be."""
    for one in members:
        parts = one.filename.removesuffix("/").split("/")
        if "\\" in one.filename or any(part in ("", ".", "..") for part in parts):
            raise UserError(f'{archive.name} holds "{one.filename}", which leads out of its folder', field=field)
        if stat.S_ISLNK(one.external_attr >> 16):
            raise UserError(f'{archive.name} holds "{one.filename}", a link', field=field, hint="links are not read")
        if one.compress_type not in COMPRESSIONS:
            raise UserError(f'{archive.name} has "{one.filename}" packed in a way that wheels do not have', field=field)
    size, most = sum(one.file_size for one in members), max_unpacked_size(archive)
    if size > most:
        raise UserError(
            f"{archive.name} is {format_size(archive.stat().st_size)} and would unpack to {format_size(size)}",
            field=field,
            hint=f"at most {MAX_RATIO} times its own size is unpacked; do it yourself, and give the local path",
        )
    if size > free:
        raise UserError(
            f"{archive.name} would unpack to {format_size(size)}, and {format_size(free)} are free", field=field,
            hint="make room, or set PROBESCALE_CACHE to another disk",
        )  # fmt: skip
