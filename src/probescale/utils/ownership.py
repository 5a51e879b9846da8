"""Which files in a folder are ours: every folder that users see has a manifest of what was written into it.

Only listed files are ever replaced or removed. Whatever else is found there belongs to someone else.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from probescale.errors import UserError

MANIFEST = ".probescale"
SHOWN = 3  # files that an error names


def write_manifest(folder: Path, kind: str, also: Iterable[str] = (), files: Iterable[str] | None = None) -> None:
    """List all files of a folder that is still ours alone (or `files`), and those that are `also` going to be there."""
    present = (str(path.relative_to(folder)) for path in walk_files(folder)) if files is None else files
    listed = {"made by": "probescale", "kind": kind, "files": sorted({*present, *also, MANIFEST})}
    (folder / MANIFEST).write_text(json.dumps(listed, indent=1), encoding="utf-8")


def read_manifest(folder: Path, kind: str) -> frozenset[str] | None:
    """The files of a folder of this kind that are ours; None where it has no manifest, or that of another kind."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        is_kind = isinstance(listed, dict) and listed.get("kind") == kind
        return frozenset(map(str, listed["files"])) if is_kind else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def walk_files(folder: Path) -> Iterator[Path]:
    """Every file and link below a folder. Links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place) / name for name in files)
        yield from (path for name in folders if (path := Path(place) / name).is_symlink())


def find_strangers(folder: Path, own: Iterable[str]) -> list[Path]:
    """The files of a folder that are not among our own."""
    ours = {folder / name for name in own}
    return sorted(path for path in walk_files(folder) if path not in ours)


def refuse_strangers(folder: Path, kind: str, *, field: str = "--out") -> None:
    """Refuse to replace a folder that is not ours, or that also holds files of someone else."""
    own = read_manifest(folder, kind)
    if own is None:
        raise UserError(
            f'"{folder}" has no {MANIFEST} that lists the files of a {kind}: it was not written by this command, and '
            "is left alone",
            field=field,
            hint="choose another folder",
        )
    name_strangers(folder, find_strangers(folder, own), field=field)


def name_strangers(folder: Path, strangers: list[Path], *, field: str = "--out") -> None:
    """Raise an error that names files of someone else, if there are any."""
    if strangers:
        names = ", ".join(str(path.relative_to(folder)) for path in strangers[:SHOWN])
        more = f" and {len(strangers) - SHOWN} more" if len(strangers) > SHOWN else ""
        raise UserError(
            f'"{folder}" also holds files that ProbeScale did not write, and is left alone: {names}{more}',
            field=field,
            hint="move them elsewhere, or choose another folder; then run the same command again",
        )


def remove_own(folder: Path, own: Iterable[str], keep_in: Path | None = None) -> None:
    """Remove our own files of a folder, and the folder if nothing else is left in it.

    `keep_in`: a folder that takes over what else is there.
    """
    strangers = find_strangers(folder, own)
    if keep_in:
        for path in strangers:
            target = keep_in / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        strangers = []
    if not strangers:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in own:
        (folder / name).unlink(missing_ok=True)
    remove_empty_folders(folder)


def remove_empty_folders(folder: Path) -> None:
    """Remove a folder and those below it, as far as no file is in them."""
    for place, _, _ in os.walk(folder, topdown=False):
        if not any(Path(place).iterdir()):
            Path(place).rmdir()
