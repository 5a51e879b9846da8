"""`probescale cache`: what is kept on disk between runs, how large it is, and how to be rid of it."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError
from probescale.utils.sources import cache_dir, features_dir, packages_dir, try_lock

GIGABYTES = 20  # that the cache may take
IN_USE = 3600  # seconds: what a process used so lately, it may still read


@dataclass(frozen=True)
class Entry:
    """One line of `probescale cache list`."""

    name: str
    about: str
    size: int
    used: float  # seconds since the epoch


def list_entries() -> list[Entry]:
    """What the cache holds, last used first: representations, unfinished ones, and fetched packages."""
    found = []
    for folder in [*_folders(features_dir()), *_folders(packages_dir())]:
        try:
            files = [file.stat() for file in folder.rglob("*") if file.is_file()]
            used = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
            size = sum(file.st_size for file in files)
            found.append(Entry(str(folder.relative_to(cache_dir())), _about(folder), size, used))
        except FileNotFoundError:
            continue  # another process has just finished or removed it
    return sorted(found, key=lambda entry: -entry.used)


def remove_entries(older_than_days: float = 0) -> tuple[int, int]:
    """Remove entries not used for so long; (entries, bytes). An entry that is being computed stays."""
    old = [entry for entry in list_entries() if entry.used <= time.time() - older_than_days * 86_400]
    gone = [entry for entry in old if _remove(entry)]
    return len(gone), sum(entry.size for entry in gone)


def enforce_limit(limit: int | None = None) -> None:
    """Remove what was not used for longest, until the cache is no larger; what was used lately stays in any case."""
    most = cache_limit() if limit is None else limit
    total = 0
    for entry in list_entries():  # last used first
        total += entry.size
        if total > most and entry.used < time.time() - IN_USE and _remove(entry):
            total -= entry.size


def cache_limit() -> int:
    """$PROBESCALE_CACHE_LIMIT in gigabytes."""
    said = os.environ.get("PROBESCALE_CACHE_LIMIT", str(GIGABYTES))
    try:
        wanted = float(said)
    except ValueError:
        wanted = -1.0
    if not 0 <= wanted < float("inf"):
        raise UserError(
            f'"{said}" is not a size', field="PROBESCALE_CACHE_LIMIT", hint="give a number of gigabytes, such as 20"
        )
    return round(wanted * 1e9)


def _remove(entry: Entry) -> bool:
    """Unless another process has it."""
    folder = cache_dir() / entry.name
    lock = FileLock(folder.parent / f"{folder.name.removesuffix('.partial')}.lock")
    if not try_lock(lock):
        return False
    try:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    finally:
        lock.release()


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _about(folder: Path) -> str:
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
