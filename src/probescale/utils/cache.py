"""The cache on disk: list its entries, remove them, keep it within a size limit.

An entry is a folder with our manifest. Other folders, and files that an entry's manifest does not list, stay untouched.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError
from probescale.utils.ownership import read_manifest, remove_own

FEATURES, PACKAGE = "cached representations", "cached package"  # kinds of entries
DEFAULT_LIMIT = 20  # gigabytes
IN_USE = 3600  # seconds: a process may still read an entry that was used so recently


def cache_dir() -> Path:
    """The cache folder: $PROBESCALE_CACHE, or probescale/ in the user's cache folder."""
    if folder := os.environ.get("PROBESCALE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probescale"


def features_dir() -> Path:
    """The cache folder of representations."""
    return cache_dir() / "features"


def packages_dir() -> Path:
    """The cache folder of files from wheels."""
    return cache_dir() / "pypi"


def try_lock(lock: FileLock) -> bool:
    """Acquire a lock if it is free; returns whether it was."""
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        return False
    return True


@dataclass(frozen=True)
class CacheEntry:
    """One line of `probescale cache list`."""

    name: str
    about: str
    size: int
    used: float  # seconds since the epoch


def list_entries() -> list[CacheEntry]:
    """All entries, most recently used first: representations, unfinished representations, and packages."""
    listed = []
    for folder, own in _entries():
        try:
            files = [file.stat() for name in own if (file := folder / name).is_file()]
            used = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
            size = sum(file.st_size for file in files)
            listed.append(CacheEntry(str(folder.relative_to(cache_dir())), _describe(folder), size, used))
        except FileNotFoundError:
            continue  # another process has just finished or removed it
    return sorted(listed, key=lambda entry: -entry.used)


def remove_entries(older_than_days: float = 0) -> tuple[int, int]:
    """Remove entries that were not used for so many days, except those in use; returns (entries, bytes)."""
    old = [entry for entry in list_entries() if entry.used <= time.time() - older_than_days * 86_400]
    removed = [entry for entry in old if _remove(entry)]
    return len(removed), sum(entry.size for entry in removed)


def enforce_limit(limit: int | None = None) -> None:
    """Remove the least recently used entries until the cache fits its limit; entries in use always stay."""
    limit = cache_limit() if limit is None else limit
    total = 0
    for entry in list_entries():  # most recently used first
        total += entry.size
        if total > limit and entry.used < time.time() - IN_USE and _remove(entry):
            total -= entry.size


def cache_limit() -> int:
    """The largest size of the cache in bytes, from $PROBESCALE_CACHE_LIMIT in gigabytes."""
    text = os.environ.get("PROBESCALE_CACHE_LIMIT", str(DEFAULT_LIMIT))
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise UserError(
            f'"{text}" is not a size', field="PROBESCALE_CACHE_LIMIT", hint="give a number of gigabytes, such as 20"
        )
    return round(gigabytes * 1e9)


def _remove(entry: CacheEntry) -> bool:
    """Remove an entry, unless another process holds its lock; returns whether it is gone."""
    folder = cache_dir() / entry.name
    lock = FileLock(folder.parent / f"{folder.name.removesuffix('.partial')}.lock")
    if not try_lock(lock):
        return False
    try:
        remove_own(folder, _list_own(folder) or ())
        return _list_own(folder) is None
    finally:
        lock.release()


def _entries() -> list[tuple[Path, frozenset[str]]]:
    """The folder of every entry, and the files in it that are ours."""
    roots = (features_dir(), packages_dir())
    folders = [path for root in roots if root.is_dir() for path in root.iterdir() if path.is_dir()]
    return [(path, own) for path in folders if (own := _list_own(path)) is not None]


def _list_own(folder: Path) -> frozenset[str] | None:
    """The files of an entry that are ours; None for a folder that is no entry."""
    return read_manifest(folder, FEATURES if folder.parent == features_dir() else PACKAGE)


def _describe(folder: Path) -> str:
    """What an entry holds, for people."""
    if folder.name.endswith(".partial"):
        return "unfinished"
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return "fetched package"
    try:
        about = json.loads(manifest.read_text(encoding="utf-8"))["about"]
    except (ValueError, KeyError):
        return "damaged"
    return ", ".join(str(about[name]) for name in ("model", "pooling", "inputs") if name in about)
