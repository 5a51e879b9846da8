"""Mixed precision where the hardware has it. A number format that a processor lacks can kill the process: asked first
in a process of its own."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Literal

import torch

from probescale.utils.progress import console
from probescale.utils.subprocesses import python_command

Precision = Literal["auto", "float32", "bfloat16", "float16"]
_TRY = """
import torch
layer = torch.nn.Linear(64, 64)
with torch.autocast("cpu", torch.{name}):
    layer(torch.ones(64, 64)).sum().backward()
"""


def choose_precision(wished: Precision) -> Precision:
    """bfloat16 on a GPU that has it unless another is wished; float32 where the wished one does not work."""
    gpu = torch.cuda.is_available()
    if wished == "auto":
        return "bfloat16" if gpu and torch.cuda.is_bf16_supported() else "float32"
    if wished == "float32" or (gpu and (wished == "float16" or torch.cuda.is_bf16_supported())):
        return wished
    if wished == "float16":  # its small gradients vanish unless they are scaled, which only GPUs do
        console.print("note: float16 is for GPUs; training in float32")
        return "float32"
    if not gpu and _runs_here(wished):
        return wished
    console.print(f"note: this machine cannot compute in {wished}; training in float32")
    return "float32"


@cache
def _runs_here(name: str) -> bool:
    """Tried in a child: some virtual CPUs announce bfloat16 and die of it."""
    return subprocess.run(python_command(_TRY.format(name=name)), capture_output=True, check=False).returncode == 0
