"""Run work in a forked process that kills itself just before a chosen change of its files.

Killing before every change in turn gives every state of the files that `kill -9` can leave.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
TIMES = ("seconds", "milliseconds", "speedup", "spread", "command", "pace", "usual_seconds")
TIMES += ("texts_per_second", "tokens_per_second")


@dataclass(frozen=True)
class Change:
    """One change of a file or folder: the audit event, and the path below the watched folder."""

    kind: str
    path: str  # of a rename, the new name

    @property
    def completes(self) -> bool:
        """Whether this change gives a complete file or folder its final name."""
        return self.kind == "os.rename" and not self.path.endswith(".tmp")


def run_forked(
    work: Callable[[], object], root: Path, log: Path, kill_at: int | None = None
) -> tuple[int, list[Change]]:
    """Run work in a fork; give its exit code (negative: a signal) and its changes below root.

    `kill_at` is the number of the change, from 1, before which the fork kills itself.
    """
    log.unlink(missing_ok=True)
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, [Change(*json.loads(line)) for line in log.read_text().splitlines()]
    try:
        _watch(root, os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), kill_at)
        work()
        os._exit(0)
    except BaseException:  # a forked test must not continue as one
        traceback.print_exc()
    finally:
        os._exit(1)


def _watch(root: Path, log: int, kill_at: int | None) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        path = _changed(event, arguments)
        if path is None or not path.startswith(f"{root}/"):
            return
        seen += 1
        os.write(log, (json.dumps([event, path.removeprefix(f"{root}/")]) + "\n").encode())
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _changed(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The path that a Python audit event is about to change, or None."""
    if event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else set(mode or "") & set("wax+")
        return os.fsdecode(path) if writes and isinstance(path, str | bytes | os.PathLike) else None
    if event not in CHANGES:
        return None
    path = arguments[1] if event == "os.rename" else arguments[0]
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None


def read_contents(folder: Path) -> dict[str, Any]:
    """The contents of every file in a folder, without times."""
    return {str(path.relative_to(folder)): _contents(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _contents(path: Path) -> object:
    """JSON as it is, other files as a hash, None for reports."""
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_text()))
    if path.name.startswith("report.") or path.name == "README.md":
        return None  # reports state times; their figures are in the other files
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value
