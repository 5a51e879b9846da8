"""Seals of partial work: what every file held when it was complete.

A file that has changed since is restored if it is a small text, else removed, and made again by the run. The seals also
tell what is ours in a work folder. A seal that is damaged itself says nothing about its file, which is then trusted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from probescale.utils.files import COMPLETED, atomic_file, file_sha256, is_temporary, write_text
from probescale.utils.ownership import MANIFEST, find_strangers, remove_empty_folders, walk_files
from probescale.utils.progress import console

INNER = ".work"  # within a work folder: what only a resumed run needs; removed when the run is complete
SEALS = f"{INNER}/seals"
SUFFIX = ".seal"
RESTORABLE = 4_000_000  # bytes of a text that its seal has a copy of
TRAINING, TRACKED = "training", "tracking"  # folders that the trainer and its trackers write to, without seals


@dataclass(frozen=True)
class Seal:
    """The contents of one file, or of all files in one folder, by their paths in the work folder."""

    hashes: dict[str, str]  # sha256
    texts: dict[str, str]  # of small texts


@contextmanager
def sealed(work: Path) -> Iterator[None]:
    """Within the block, every file and folder that is completed in the work folder gets a seal.

    The seal comes first: a run that is killed in between leaves no file without one.
    """

    def notice(partial: Path, target: Path) -> None:
        inside = target.relative_to(work) if target.is_relative_to(work) else None
        if inside and not inside.is_relative_to(SEALS) and not any(map(is_temporary, inside.parts)):
            seal(work, target, partial)

    COMPLETED.append(notice)
    try:
        yield
    finally:
        COMPLETED.remove(notice)


def seal(work: Path, unit: Path, partial: Path | None = None) -> None:
    """Write down what a file, or every file of a folder, holds now. `partial`: where it still is."""
    source = partial or unit
    files = list(walk_files(source)) if source.is_dir() else [source]
    names = {str((unit / path.relative_to(source)).relative_to(work)): path for path in files}
    texts = {name: text for name, path in names.items() if (text := _read_small_text(path)) is not None}
    content = json.dumps({"hashes": {name: file_sha256(path) for name, path in names.items()}, "texts": texts})
    inside = unit.relative_to(work)
    write_text(work / SEALS / inside.with_name(f"{inside.name}{SUFFIX}"), f"{_hash(content)}\n{content}")


def mend(work: Path) -> list[str]:
    """Restore or remove what is damaged in a work folder; returns what was removed, and has to be made again."""
    removed = []
    for path in sorted((work / SEALS).rglob(f"*{SUFFIX}")):
        unit = work / path.relative_to(work / SEALS).with_name(path.name.removesuffix(SUFFIX))
        known = _read_seal(path)
        if not unit.exists():
            path.unlink()
        elif known is None:
            seal(work, unit)
        elif not _restore(work, known):
            for name in list_own(work):
                if (work / name).is_relative_to(unit):
                    (work / name).unlink(missing_ok=True)
            remove_empty_folders(unit)
            path.unlink()
            removed.append(str(unit.relative_to(work)))
            console.print(f"{unit} is damaged, and is made again", soft_wrap=True)
    return removed


def list_own(work: Path) -> list[str]:
    """The files of a work folder that are ours, by their paths in it."""
    seals = [known for path in (work / SEALS).rglob(f"*{SUFFIX}") if (known := _read_seal(path))]
    names = (path.relative_to(work) for path in walk_files(work))
    unsealed = [str(name) for name in names if _is_unsealed(name)]
    return [*unsealed, *(name for known in seals for name in known.hashes), MANIFEST]


def _is_unsealed(name: Path) -> bool:
    """Whether a file is ours although it has no seal: seals, checkpoints, files of trackers, temporary ones."""
    parts = name.parts
    in_training = (INNER, TRAINING) in pairwise(parts)
    return name.is_relative_to(SEALS) or in_training or TRACKED in parts or any(map(is_temporary, parts))


def find_others(work: Path) -> list[Path]:
    """The files of a work folder that are not ours."""
    return find_strangers(work, list_own(work))


def _restore(work: Path, known: Seal) -> bool:
    """Whether all files of a seal are, or were made, what they have been."""
    for name, expected in known.hashes.items():
        path = work / name
        if path.is_file() and file_sha256(path) == expected:
            continue
        if name not in known.texts:
            return False
        with atomic_file(path) as partial:
            partial.write_bytes(known.texts[name].encode())
        console.print(f"{path} was damaged, and is restored", soft_wrap=True)
    return True


def _read_seal(path: Path) -> Seal | None:
    """A seal, or None where it is damaged itself."""
    with suppress(OSError, UnicodeDecodeError):
        checksum, _, content = path.read_text(encoding="utf-8").partition("\n")
        if checksum == _hash(content):
            return Seal(**json.loads(content))
    return None


def _read_small_text(path: Path) -> str | None:
    if path.stat().st_size > RESTORABLE:
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
