"""ONNX Runtime, asked first in a process of its own: kernels for small numbers can kill old or virtual processors."""

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
run = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
run.run(None, {one.name: numpy.ones((2, 8), numpy.int64) for one in run.get_inputs()})
"""
INSTALL = 'pip install "probescale[onnx]"'


def open_session(path: Path, *, int8: bool) -> InferenceSession:
    """On the CPU, with as many threads as PyTorch would use; 8-bit graphs are tried first."""
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
    except Exception as error:  # whatever the runtime makes of a wrong file
        raise UserError(f"{path} is no graph that ONNX Runtime reads: {error}", field="MODEL") from error


@cache
def can_run(path: Path) -> bool:
    """Whether a graph runs without killing its process."""
    words = python_command(TRY, str(path))
    return subprocess.run(words, capture_output=True, check=False, env=_quiet()).returncode >= 0


def _quiet() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def _library():  # noqa: ANN202 - the module
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError("ONNX Runtime is not installed", field="--to", hint=INSTALL) from error
    return onnxruntime
