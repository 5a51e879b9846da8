"""llama.cpp's own converter: code from outside, which runs only where the user names it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from probescale.errors import UserError
from probescale.utils.sanitize import escape_controls
from probescale.utils.source_packages import SourcePackage, fetch_source_package

SCRIPT = "convert_hf_to_gguf.py"
PYPI = "pypi"  # the word that fetches the pinned one
PACKAGE = SourcePackage(
    name="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    folder="vendor/llama.cpp",
    parts=(SCRIPT, "conversion", "gguf-py"),
)
UNKNOWN_TOKENIZER = "pre-tokenizer was not recognized"  # it knows tokenizers by what they make of one text
SECRETS = ("TOKEN", "KEY", "SECRET", "PASSWORD")  # parts of names of variables that it does not need
NOT_SUPPORTED = "is not supported"


def find_converter(named: str | None) -> Path:
    """The folder of the converter that the user named; nothing is fetched or run without that word."""
    if named is None:
        raise UserError(
            "GGUF is written by llama.cpp's converter, which is code from outside and runs only if you name it",
            field="--converter",
            hint=f"add --converter {PYPI} ({PACKAGE.requirement}, 77 MB, pinned by hash), or --converter FOLDER with "
            "your own checkout of llama.cpp",
        )
    if named == PYPI:
        return fetch_source_package(PACKAGE, field="--converter")
    folder = Path(named)
    if not (folder / SCRIPT).is_file():
        raise UserError(
            f'"{named}" has no {SCRIPT}',
            field="--converter",
            hint=f"give a checkout of llama.cpp, or the word {PYPI}",
        )
    return folder.resolve()


def convert(converter: Path, model: Path, out: Path, numbers: str) -> None:
    """Write a model folder as one GGUF file. `numbers`: f32, or q8_0 for 8-bit weights."""
    command = [sys.executable, str(converter / SCRIPT), str(model.resolve()), "--outfile", str(out.resolve())]
    known = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in SECRETS)}
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [*command, "--outtype", numbers],
            cwd=elsewhere,
            env={**known, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if done.returncode or not out.is_file():
        raise _explain(done.stderr, done.returncode)


def _explain(said: str, code: int) -> UserError:
    """Why the converter wrote nothing, and what to do."""
    lines = [line for line in said.splitlines() if line.strip()] or [f"exit code {code}"]
    last = escape_controls(lines[-1])[:300]
    if UNKNOWN_TOKENIZER in said:
        return UserError(
            "llama.cpp's converter does not know this tokenizer: it recognises them by a hash, which a trimmed or new "
            "vocabulary changes",
            field="MODEL",
            hint="export a model with its parent's vocabulary (shrink.vocabulary: all), or add the hash to a checkout "
            "of your own",
        )
    if "No module named" in last:
        missing = last.rpartition(" ")[2].strip("'")
        return UserError(
            f"llama.cpp's converter needs a package that is not installed: {missing}",
            field="--converter",
            hint=f"pip install {missing}",
        )
    hint = "llama.cpp may not know this architecture" if NOT_SUPPORTED in said else "nothing was written"
    return UserError(f"llama.cpp's converter failed: {last}", field="--converter", hint=hint)
