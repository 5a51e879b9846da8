"""The errors that libraries really raise when a disk is full or memory runs out are recognised."""

from __future__ import annotations

import errno
import resource
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from helpers.limits import limited
from probescale.errors import MachineError, Problems, UserError
from probescale.models.proof import comparison
from probescale.utils.files import write_text
from probescale.utils.resources import find_shortage, report_shortage

HUGE = 1 << 50
WRITES = {
    "python": lambda path: path.write_bytes(bytes(5000)),
    "numpy": lambda path: np.save(path, np.zeros(5000)),
    "safetensors": lambda path: save_file({"w": torch.zeros(5000)}, path),
    "tokenizers": lambda path: Tokenizer(models.WordLevel({str(n): n for n in range(5000)}, "0")).save(str(path)),
    "arrow": lambda path: pyarrow.parquet.write_table(pa.table({"a": range(5000)}), path),
}
WITHOUT_MEMORY = {
    "numpy": lambda: np.empty(HUGE),
    "torch": lambda: torch.empty(HUGE),
    "python": lambda: bytearray(HUGE),
    "gpu": lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")),
}


@pytest.mark.parametrize("library", WRITES)
def test_a_file_above_the_size_limit(library, tmp_path):
    with limited(resource.RLIMIT_FSIZE, 1000), pytest.raises(MachineError) as found, report_shortage(Path("here")):
        WRITES[library](tmp_path / "file.npy")
    what = "the disk is full" if library == "numpy" else "a file would exceed the size limit"
    assert str(found.value).startswith(f"here: {what}\n  next: ")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk(error):
    """As on a small tmpfs, which only root can create."""
    assert str(find_shortage(error, Path("here"))).startswith("here: the disk is full\n  next: free some space")


@pytest.mark.parametrize("library", WITHOUT_MEMORY)
def test_no_memory(library):
    with pytest.raises(MachineError, match="there is not enough memory"), report_shortage(Path("here")):
        list(WITHOUT_MEMORY[library]())  # type: ignore[call-overload]


def test_the_errors_own_file_name_is_kept():
    short = find_shortage(OSError(errno.ENOSPC, "No space left on device", "there/scores.json"), Path("here"))
    assert str(short).startswith("there/scores.json: the disk is full")


def test_an_error_caused_by_a_shortage_is_one():
    wrong = UserError("this is no model")
    wrong.__cause__ = RuntimeError("unable to open file </a/b> in read-only mode: Too many open files (24)")
    for error in (wrong, Problems([UserError("another"), wrong])):
        assert "too many files are open" in str(find_shortage(error))


def test_user_input_is_not_taken_for_a_shortage():
    assert find_shortage(UserError('the label "out of memory (os error 28)" is not known')) is None
    assert find_shortage(ValueError("something else")) is None
    assert find_shortage(PermissionError(errno.EACCES, "Permission denied", "x")) is None


def test_a_failed_write_names_the_file(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=r"scores\.json"):
        write_text(tmp_path / "scores.json", "{}")
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_for_temporary_files_is_named(monkeypatch, tmp_path):
    """Files of a proof are written there; the output folder was blamed."""

    def full(*_: object) -> None:
        raise OSError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(comparison, "save_file", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    job = SimpleNamespace(reference=SimpleNamespace(inputs={}))
    with pytest.raises(MachineError, match=r"temporary/.*: the disk is full"), report_shortage(tmp_path / "out"):
        comparison.prove_folders([job])  # type: ignore[list-item]
