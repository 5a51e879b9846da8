"""Multiply float32 matrices with oneDNN instead of MKL where it is faster and just as exact.

PyTorch has both and uses MKL, which leaves half of an AMD processor's vector width unused. With oneDNN, trainings and
passes take 0.54 to 0.70 of the time there (docs/concepts/decisions.md).
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

LONG_INPUT = 200  # tokens: from here on, attention block by block is the faster one, and takes less memory
NOT_IN_BFLOAT16 = 1 + 2**-12  # rounds to 1 there


@contextmanager
def fast_float32() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices inside this context, where that is faster and just as exact."""
    if not _is_faster_here():
        yield
        return
    with _precision("medium"), _AttentionByLength():
        yield


@contextmanager
def usual_float32() -> Iterator[None]:
    """Compute as PyTorch does by itself, in speed and to the last bit, as users of the model will."""
    if torch.get_float32_matmul_precision() != "medium" or not _is_faster_here():
        yield
        return
    with _precision("highest"):
        yield


@contextmanager
def _precision(name: str) -> Iterator[None]:
    """`medium` allows bfloat16; oneDNN does not make use of that where the processor has no matrix unit (AMX)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def alike_when_repeated() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts for a part of a forward pass, and for its repetition in the backward pass, which knows no outer ones."""
    if not _is_faster_here():
        return nullcontext(), nullcontext()
    return _AttentionByLength(), _AttentionByLength()


class _AttentionByLength(TorchFunctionMode):
    """Computes the attention of short inputs as whole matrices: oneDNN takes long to begin with every small block."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if (
            func is torch.nn.functional.scaled_dot_product_attention
            and torch.get_float32_matmul_precision() == "medium"
        ):
            key = args[1] if len(args) > 1 else kwargs["key"]  # (batch, heads, tokens, width)
            if key.shape[-2] < LONG_INPUT:
                with sdpa_kernel(SDPBackend.MATH):
                    return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@cache
def _is_faster_here() -> bool:
    """Whether this is a processor on which MKL is slow and oneDNN exact."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    if torch.cuda.is_available() or not wide or not torch.backends.mkl.is_available() or "AMD" not in _maker():
        return False
    matrix = torch.full((128, 128), NOT_IN_BFLOAT16)
    with _precision("medium"):
        return torch.equal(matrix @ torch.eye(128), matrix)


def _maker() -> str:
    """Of the processor, as it names itself."""
    described = Path("/proc/cpuinfo")
    return described.read_text(errors="replace") if described.exists() else platform.processor()
