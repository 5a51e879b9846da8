"""Download one file of a package index with the user's own pip configuration; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from probescale.errors import UserError
from probescale.utils.progress import console
from probescale.utils.subprocesses import module_command


def download_package(
    requirement: str, into: Path, *, sha256: str | None, options: Sequence[str], field: str, hint: str
) -> Path:
    """The downloaded file. Pip checks the hash, where one is given, and shows its own progress bar in a terminal.

    `options`: which of the package's files is wanted. `hint`: what to do where pip fails.
    """
    pinned = f" --hash=sha256:{sha256}" if sha256 else ""
    (into / "requirements.txt").write_text(f"{requirement}{pinned}\n")
    always = ["download", "--disable-pip-version-check", "--no-deps"]
    where = ["-r", str(into / "requirements.txt"), "-d", str(into / "package")]
    shown = sys.stderr if console.is_terminal else subprocess.DEVNULL
    command = module_command("pip", *always, *options, *where)
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"pip could not download {requirement}: {_find_reason(done.stderr)}", field=field, hint=hint)
    return next((into / "package").iterdir())


def _find_reason(printed: str) -> str:
    """Why pip failed, in its own words."""
    reasons = [line.partition("ERROR:")[2].strip() for line in printed.splitlines() if "ERROR:" in line]
    if any("DO NOT MATCH THE HASHES" in reason for reason in reasons):
        return "its hash is not the pinned one"
    return reasons[-1] if reasons else "no reason given"
