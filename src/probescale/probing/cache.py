"""Representations on disk: one folder per pass and pooling, one memory-mappable array per site.

A pass appends rows in a fixed order and notes how far it came, so that one that was killed goes on from there. A folder
takes its final name when it is complete; what does not agree with its manifest is computed again, never used.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
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
from probescale.utils.cache import cache_limit, enforce_limit, features_dir, try_lock
from probescale.utils.files import format_size, write_json
from probescale.utils.progress import console

READ_ROWS = 4096  # at once: what is read stays small whatever the file's size
NOTE_SECONDS = 2.0


@dataclass(frozen=True)
class Features:
    """The states of one view at every site, on disk."""

    folder: Path
    inputs: np.ndarray  # (rows,) number of the input each row comes from, rows in the order of the data
    words: np.ndarray  # (rows,)
    places: np.ndarray  # (rows,) where each row stands in the files
    widths: dict[str, int]  # by site

    def __len__(self) -> int:
        return len(self.inputs)

    def load(self, site: str, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        """These rows at a site, (rows, width), in the order asked for."""
        target = np.full(len(self), -1)
        target[self.places[rows]] = np.arange(len(rows))
        path = self.folder / f"{site}.npy"
        found = np.empty((len(rows), len(range(self.widths[site])[columns])), np.float32)
        for first in range(0, len(self), READ_ROWS):
            here = target[first : first + READ_ROWS]
            wanted = np.flatnonzero(here >= 0)
            # A mapping of its own for every part: a long one would count as memory in use.
            found[here[wanted]] = np.load(path, mmap_mode="r")[first + wanted, columns]
        return found


@dataclass
class Writer:
    """A folder being filled; rows come in the order of the pass."""

    folder: Path
    widths: Mapping[str, int]
    inputs: np.ndarray  # of each row, in the order of the pass
    words: np.ndarray
    rows: int = 0  # written so far
    sums: dict[str, int] = field(default_factory=dict)
    files: dict[str, BinaryIO] = field(default_factory=dict)
    noted: float = field(default_factory=time.monotonic)
    durable: bool = True  # survives a power cut; not wanted of what is thrown away
    pending: bool = False  # rows that no advance() has counted yet

    def resume(self, rows: int) -> None:
        """Open the files with the first `rows` rows in place."""
        self.folder.mkdir(parents=True, exist_ok=True)
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
            self.sums[site] = _sum(path, rows, width)

    def write(self, site: str, rows: np.ndarray) -> None:
        data = np.ascontiguousarray(rows, "<f4").data
        self.pending = True
        self.sums[site] = zlib.crc32(data, self.sums[site])
        self.files[site].write(data)

    def undo(self) -> None:
        """Forget what was written since the last advance()."""
        if self.pending:
            self.close()
            self.resume(self.rows)
            self.pending = False

    def advance(self, rows: int) -> None:
        self.rows += rows
        self.pending = False
        if time.monotonic() - self.noted > NOTE_SECONDS:
            for file in self.files.values():
                file.flush()
            write_json(self.folder / "progress.json", {"rows": self.rows, "crc32": self.sums})
            self.noted = time.monotonic()

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def finish(self, target: Path, about: Mapping[str, Any]) -> None:
        for file in self.files.values():
            file.flush()
            if self.durable:
                os.fsync(file.fileno())
        self.close()
        np.save(self.folder / "rows.npy", np.stack([self.inputs, self.words]).astype(np.int32))
        manifest = {"rows": self.rows, "widths": dict(self.widths), "crc32": self.sums, "about": dict(about)}
        (self.folder / "progress.json").unlink(missing_ok=True)
        write_json(self.folder / "manifest.json", manifest)
        shutil.rmtree(target, ignore_errors=True)
        self.folder.replace(target)

    def progress(self) -> int:
        """Rows that an earlier, interrupted pass left in good order."""
        path = self.folder / "progress.json"
        try:
            noted = json.loads(path.read_text(encoding="utf-8"))
            rows, sums = int(noted["rows"]), {site: int(noted["crc32"][site]) for site in self.widths}
            good = all(_sum(self.folder / f"{s}.npy", rows, w) == sums[s] for s, w in self.widths.items())
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        if not good or rows > len(self.inputs):
            return 0
        return rows


class Store:
    """The folder of all representations; from `Store.open(keep=False)`, one that goes away at the end."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root, self.durable = root, durable
        place = "run `probescale cache clear`, or set PROBESCALE_CACHE" if durable else "set TMPDIR"
        self.elsewhere = f"{place} to a folder on another disk"

    @classmethod
    @contextmanager
    def open(cls, *, keep: bool) -> Iterator[Store]:
        if keep:
            cache_limit()  # a wrong one shows before the work
        if keep and _writable(features_dir()):
            yield cls(features_dir())
            enforce_limit()
        else:
            with tempfile.TemporaryDirectory(prefix="probescale-") as folder:
                yield cls(Path(folder), durable=False)

    def find(self, key: str) -> Features | None:
        """A complete entry that agrees with its manifest, to the last byte."""
        folder = self.root / key
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            inputs, words = np.load(folder / "rows.npy")
            rows, widths = int(manifest["rows"]), {str(s): int(w) for s, w in manifest["widths"].items()}
            sums = {site: _sum(folder / f"{site}.npy", rows, width) for site, width in widths.items()}
            good = len(inputs) == rows and sums == manifest["crc32"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if not good:
            return None
        with suppress(OSError):  # another process may just have removed it
            os.utime(folder / "manifest.json")  # last use
        places = np.lexsort((words, inputs))
        return Features(folder, inputs[places], words[places], places, widths)

    @contextmanager
    def locked(self, keys: list[str]) -> Iterator[None]:
        """Only one process computes an entry. The lock goes away with its process, however that ends."""
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
        needed = len(inputs) * sum(widths.values()) * 4
        free = shutil.disk_usage(self.root).free
        if needed > free:
            raise MachineError(
                f"the representations need {format_size(needed)}, but {self.root} has {format_size(free)} left",
                hint=f"use fewer examples, or {self.elsewhere}",
            )
        return Writer(self.root / f"{key}.partial", widths, inputs, words, durable=self.durable)


def _writable(folder: Path) -> bool:
    """Whether representations can be kept; a run does without, and says so."""
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


def _sum(path: Path, rows: int, width: int) -> int:
    """crc32 of the first rows; ValueError where they are not all there."""
    left, found = rows * width * 4, 0
    with path.open("rb") as file:
        file.seek(_data_offset(path))
        while left:
            data = file.read(min(left, 1 << 22))
            if not data:
                raise ValueError(f"{path} is too short")
            found, left = zlib.crc32(data, found), left - len(data)
    return found
