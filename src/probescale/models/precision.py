"""Choose a precision that the hardware supports. An unsupported one can kill the process, so it is tried in a child."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Literal

import torch

from probescale.utils.progress import console
from probescale.utils.subprocesses import python_command

Precision = Literal["auto", "float32", "bfloat16", "float16"]
_PROGRAM = """
import torch
layer = torch.nn.Linear(64, 64)
with torch.autocast("cpu", torch.{name}):
    layer(torch.ones(64, 64)).sum().backward()
"""


def choose_precision(requested: Precision) -> Precision:
    """The requested precision, or float32 where it does not work; auto is bfloat16 on GPUs that have it."""
    gpu = torch.cuda.is_available()
    if requested == "auto":
        return "bfloat16" if gpu and torch.cuda.is_bf16_supported() else "float32"
    if requested == "float32" or (gpu and (requested == "float16" or torch.cuda.is_bf16_supported())):
        return requested
    if requested == "float16":  # small gradients vanish unless they are scaled, which only works on GPUs
        console.print("note: float16 is for GPUs; training in float32")
        return "float32"
    if not gpu and _runs_here(requested):
        return requested
    console.print(f"note: this machine cannot compute in {requested}; training in float32")
    return "float32"


@cache
def _runs_here(name: str) -> bool:
    """Whether a child process survives it: some virtual CPUs announce bfloat16 and crash."""
    return subprocess.run(python_command(_PROGRAM.format(name=name)), capture_output=True, check=False).returncode == 0
