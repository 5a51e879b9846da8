"""Representations on disk: one folder per pass and pooling, one memory-mappable array per site.

A pass appends rows in a fixed order and saves its progress, so that a killed pass can be resumed. A folder gets its
final name when it is complete. An entry that does not match its manifest is never used: it is computed again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock

from probescale.errors import MachineError
from probescale.utils.cache import FEATURES, cache_limit, enforce_limit, features_dir, try_lock
from probescale.utils.files import format_size, write_json
from probescale.utils.ownership import MANIFEST, remove_own, write_manifest
from probescale.utils.progress import console

READ_ROWS = 4096  # read at a time: memory does not grow with the file
PROGRESS_SECONDS = 2.0  # between two notes of the progress
# NumPy parses headers with `ast`, which in CPython 3.11 may raise SystemError where two threads do so at once.
_HEADER = threading.Lock()


@dataclass(frozen=True)
class Features:
    """Pooled states at every site, on disk: one row per input, or per labelled word."""

    folder: Path
    inputs: np.ndarray  # (rows,) index of the input that each row comes from; rows are in the order of the data
    words: np.ndarray  # (rows,) index of the word in its input; 0 for whole texts
    positions: np.ndarray  # (rows,) where each row stands in the files
    widths: dict[str, int]  # by site

    def __len__(self) -> int:
        return len(self.inputs)

    def load(self, site: str, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        """States at a site, (rows, width), in the order of `rows`."""
        destination = np.full(len(self), -1)  # by position in the file; -1: not wanted
        destination[self.positions[rows]] = np.arange(len(rows))
        path = self.folder / f"{site}.npy"
        states = np.empty((len(rows), len(range(self.widths[site])[columns])), np.float32)
        for first in range(0, len(self), READ_ROWS):
            chunk = destination[first : first + READ_ROWS]
            wanted = np.flatnonzero(chunk >= 0)
            # A new mapping for every chunk: pages of a long-lived one would count as memory in use.
            with _HEADER:
                mapped = np.load(path, mmap_mode="r")
            states[chunk[wanted]] = mapped[first + wanted, columns]
            del mapped
        return states


@dataclass
class Writer:
    """Writes a cache entry: rows are appended in the order of the pass."""

    folder: Path
    widths: Mapping[str, int]
    inputs: np.ndarray  # (rows,) as in Features, but in the order of the pass
    words: np.ndarray
    rows: int = 0  # written so far
    checksums: dict[str, int] = field(default_factory=dict)  # crc32 by site
    files: dict[str, BinaryIO] = field(default_factory=dict)
    saved_at: float = field(default_factory=time.monotonic)  # when the progress was last saved
    durable: bool = True  # survives a power cut; temporary entries need not
    pending: bool = False  # whether rows were written since the last advance()

    def resume(self, rows: int) -> None:
        """Open the files with the first `rows` rows in place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_manifest(self.folder, FEATURES, files=self.names)
        self.rows = rows
        for site, width in self.widths.items():
            path = self.folder / f"{site}.npy"
            if rows == 0:
                with path.open("wb") as file:
                    shape = (len(self.inputs), width)
                    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, header)
            self.files[site] = path.open("r+b")
            offset = _data_offset(path)
            self.files[site].truncate(offset + rows * width * 4)
            self.files[site].seek(0, os.SEEK_END)
            self.checksums[site] = _checksum(path, rows, width)

    @property
    def names(self) -> list[str]:
        """The files of an entry."""
        return ["manifest.json", "progress.json", "rows.npy", *(f"{site}.npy" for site in self.widths)]

    def write(self, site: str, rows: np.ndarray) -> None:
        """Append rows to a site's file."""
        data = np.ascontiguousarray(rows, "<f4").data
        self.pending = True
        self.checksums[site] = zlib.crc32(data, self.checksums[site])
        self.files[site].write(data)

    def undo(self) -> None:
        """Remove what was written since the last advance()."""
        if self.pending:
            self.close()
            self.resume(self.rows)
            self.pending = False

    def advance(self, rows: int) -> None:
        """Count rows that all sites now have; save the progress every few seconds."""
        self.rows += rows
        self.pending = False
        if time.monotonic() - self.saved_at > PROGRESS_SECONDS:
            for file in self.files.values():
                file.flush()
            write_json(self.folder / "progress.json", {"rows": self.rows, "crc32": self.checksums})
            self.saved_at = time.monotonic()

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def finish(self, target: Path, about: Mapping[str, Any]) -> None:
        """Write the manifest and give the folder its final name."""
        for file in self.files.values():
            file.flush()
            if self.durable:
                os.fsync(file.fileno())
        self.close()
        np.save(self.folder / "rows.npy", np.stack([self.inputs, self.words]).astype(np.int32))
        manifest = {"rows": self.rows, "widths": dict(self.widths), "crc32": self.checksums, "about": dict(about)}
        (self.folder / "progress.json").unlink(missing_ok=True)
        write_json(self.folder / "manifest.json", manifest)
        if target.exists():  # a damaged one
            remove_own(target, [*self.names, MANIFEST], keep_in=self.folder)
        self.folder.replace(target)

    def read_progress(self) -> int:
        """Number of intact rows that an interrupted pass left; 0 when there are none."""
        path = self.folder / "progress.json"
        try:
            progress = json.loads(path.read_text(encoding="utf-8"))
            rows, saved = int(progress["rows"]), {site: int(progress["crc32"][site]) for site in self.widths}
            intact = all(_checksum(self.folder / f"{s}.npy", rows, w) == saved[s] for s, w in self.widths.items())
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        if not intact or rows > len(self.inputs):
            return 0
        return rows


class Store:
    """The folder of all cached representations; `Store.open(keep=False)` gives a temporary one."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root, self.durable = root, durable
        remedy = "run `probescale cache clear`, or set PROBESCALE_CACHE" if durable else "set TMPDIR"
        self.disk_hint = f"{remedy} to a folder on another disk"

    @classmethod
    @contextmanager
    def open(cls, *, keep: bool) -> Iterator[Store]:
        """The user's cache; a temporary folder without `keep`, or where the cache cannot be written."""
        if keep:
            cache_limit()  # an invalid limit is reported before any work
        if keep and _writable(features_dir()):
            yield cls(features_dir())
            enforce_limit()
        else:
            with tempfile.TemporaryDirectory(prefix="probescale-") as folder:
                yield cls(Path(folder), durable=False)

    def find(self, key: str) -> Features | None:
        """The entry of this key, if it is complete and matches its manifest to the last byte."""
        folder = self.root / key
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            inputs, words = np.load(folder / "rows.npy")
            rows, widths = int(manifest["rows"]), {str(s): int(w) for s, w in manifest["widths"].items()}
            checksums = {site: _checksum(folder / f"{site}.npy", rows, width) for site, width in widths.items()}
            intact = len(inputs) == rows and checksums == manifest["crc32"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if not intact:
            return None
        with suppress(OSError):  # another process may just have removed it
            os.utime(folder / "manifest.json")  # the time of last use
        positions = np.lexsort((words, inputs))
        return Features(folder, inputs[positions], words[positions], positions, widths)

    @contextmanager
    def locked(self, keys: list[str]) -> Iterator[None]:
        """Let only one process compute these entries. A lock ends with its process, even a killed one."""
        self.root.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            for key in sorted(keys):
                lock = FileLock(self.root / f"{key}.lock")
                if not try_lock(lock):
                    console.print("another process is computing these representations; waiting for it")
                    lock.acquire()
                stack.callback(lock.release)
            yield

    def writer(self, key: str, widths: Mapping[str, int], inputs: np.ndarray, words: np.ndarray) -> Writer:
        """A writer for a new entry; MachineError where the disk is too full for it."""
        needed = len(inputs) * sum(widths.values()) * 4
        free = shutil.disk_usage(self.root).free
        if needed > free:
            raise MachineError(
                f"the representations need {format_size(needed)}, but {self.root} has {format_size(free)} left",
                hint=f"use fewer examples, or {self.disk_hint}",
            )
        return Writer(self.root / f"{key}.partial", widths, inputs, words, durable=self.durable)


def _writable(folder: Path) -> bool:
    """Whether the cache folder can be written to; if not, prints a note that nothing is kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        console.print(
            f"note: {folder} cannot be written to ({error.strerror}); representations are not kept between commands. "
            "Set PROBESCALE_CACHE to another folder to keep them.",
            soft_wrap=True,
        )
        return False
    return True


def _data_offset(path: Path) -> int:
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return file.tell()


def _checksum(path: Path, rows: int, width: int) -> int:
    """crc32 of the first rows; ValueError where the file has fewer."""
    left, checksum = rows * width * 4, 0
    with path.open("rb") as file:
        file.seek(_data_offset(path))
        while left:
            data = file.read(min(left, 1 << 22))
            if not data:
                raise ValueError(f"{path} is too short")
            checksum, left = zlib.crc32(data, checksum), left - len(data)
    return checksum
