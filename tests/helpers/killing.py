"""Work in a forked process that kills itself at a chosen change of its files: every state that kill -9 can leave."""

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
TIMES = ("seconds", "milliseconds", "speedup", "command")


@dataclass(frozen=True)
class Change:
    """Of a file or folder: what is done, and to which of them."""

    kind: str
    path: str  # the new name of a renamed one

    @property
    def boundary(self) -> bool:
        """Something became complete."""
        return self.kind == "os.rename" and not self.path.endswith(".tmp")


def attempt(work: Callable[[], object], root: Path, log: Path, kill_at: int | None = None) -> tuple[int, list[Change]]:
    """The exit code (negative: the signal), and the changes below the root; before the last of them it was killed."""
    log.unlink(missing_ok=True)
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, [Change(*json.loads(line)) for line in log.read_text().splitlines()]
    try:
        _watch(root, os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), kill_at)
        work()
        os._exit(0)
    except BaseException:  # a forked test must not go on as one
        traceback.print_exc()
    finally:
        os._exit(1)


def _watch(root: Path, log: int, kill_at: int | None) -> None:
    seen = 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal seen
        path = _changed(event, given)
        if path is None or not path.startswith(f"{root}/"):
            return
        seen += 1
        os.write(log, (json.dumps([event, path.removeprefix(f"{root}/")]) + "\n").encode())
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _changed(event: str, given: tuple[Any, ...]) -> str | None:
    """The path that an event of Python's is about to change."""
    if event == "open":
        path, mode, flags = given
        writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else set(mode or "") & set("wax+")
        return os.fsdecode(path) if writes and isinstance(path, str | bytes | os.PathLike) else None
    if event not in CHANGES:
        return None
    path = given[1] if event == "os.rename" else given[0]
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None


def facts(folder: Path) -> dict[str, Any]:
    """What every file of a run says, but how long it took."""
    return {str(path.relative_to(folder)): _said(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _said(path: Path) -> object:
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_text()))
    if path.name.startswith("report.") or path.name == "README.md":
        return None  # they tell the times, too; their figures stand in the other files
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value
