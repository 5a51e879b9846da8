"""Open a graph with ONNX Runtime. 8-bit graphs run in a separate process first: they can crash on old processors."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from probescale.errors import UserError
from probescale.utils.subprocesses import python_command

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

TRY = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, {field.name: numpy.ones((2, 8), numpy.int64) for field in session.get_inputs()})
"""
INSTALL = 'pip install "probescale[onnx]"'


def open_session(path: Path, *, int8: bool) -> InferenceSession:
    """A session on the CPU, with as many threads as PyTorch uses; an 8-bit graph that cannot run here is refused."""
    import torch

    onnxruntime = _library()
    if int8 and not can_run(path):
        raise UserError(
            f"this machine's processor cannot run {path}",
            field="MODEL",
            hint="export it again without --int8, or use the PyTorch folder",
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # Busy waiting pays within a pass; between two it would slow whatever else runs in this process.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has no common class for the errors of a wrong file
        raise UserError(f"{path} is not a graph that ONNX Runtime can read: {error}", field="MODEL") from error


@cache
def can_run(path: Path) -> bool:
    """Whether a graph runs without crashing its process."""
    command = python_command(TRY, str(path))
    return subprocess.run(command, capture_output=True, check=False, env=_quiet()).returncode >= 0


def _quiet() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def _library():  # noqa: ANN202 - the module
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError("ONNX Runtime is not installed", field="--to", hint=INSTALL) from error
    return onnxruntime
