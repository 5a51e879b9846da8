"""bench(): how fast models and formats are, side by side in one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from probescale.deploy.model_process import ModelProcess
from probescale.errors import UserError
from probescale.utils.files import Record
from probescale.utils.progress import progress

WARM_UP = 3


class Timing(Record):
    """One model with one shape of batch."""

    model: str
    format: str
    batch_size: int
    length: int  # tokens
    median: float  # milliseconds of one batch
    p95: float
    per_second: float  # texts
    per_million: float  # seconds that a million texts take
    speedup: float  # over the first model, for this shape


class BenchResult(Record):
    threads: int
    passes: int
    rows: tuple[Timing, ...]
    size: dict[str, int]  # bytes on disk of the weights
    memory: dict[str, int]  # bytes at most, beyond the libraries


def bench(
    sources: Sequence[str], batch_sizes: Sequence[int] = (1, 32), lengths: Sequence[int] = (32, 128), passes: int = 20
) -> BenchResult:
    """All models in turn, pass by pass: what else the machine does slows them all alike."""
    if len(set(sources)) < len(sources):
        raise UserError("a model is given twice", field="MODEL", hint="give each once")
    import torch

    threads, shapes = torch.get_num_threads(), [(size, length) for size in batch_sizes for length in lengths]
    with ExitStack() as running:
        models = [running.enter_context(ModelProcess(source, threads)) for source in sources]
        about = {one.source: one.about() for one in models}
        for name, said in about.items():
            if too_long := [length for length in lengths if length > said["longest"]]:
                raise UserError(f"{name} takes at most {said['longest']} tokens, not {too_long[0]}", field="--length")
        rows: list[Timing] = []
        with progress("timing", len(shapes) * (WARM_UP + passes)) as advance:
            for size, length in shapes:
                times = _in_turn(models, size, length, passes, advance)
                rows += _timed(times, {name: said["format"] for name, said in about.items()}, size, length)
        memory = {one.source: one.memory for one in models}
    size = {name: said["size"] for name, said in about.items()}
    return BenchResult(threads=threads, passes=passes, rows=tuple(rows), size=size, memory=memory)


def _in_turn(
    models: Sequence[ModelProcess], size: int, length: int, passes: int, advance: Callable[[int], None]
) -> dict[str, list[float]]:
    """Milliseconds of every pass that counts."""
    times: dict[str, list[float]] = {one.source: [] for one in models}
    for _ in range(WARM_UP + passes):
        for one in models:
            times[one.source].append(one.run(size, length))
        advance(1)
    return {name: spent[WARM_UP:] for name, spent in times.items()}


def _timed(times: dict[str, list[float]], formats: dict[str, str], size: int, length: int) -> list[Timing]:
    first = statistics.median(next(iter(times.values())))
    return [
        Timing(
            model=name,
            format=formats[name],
            batch_size=size,
            length=length,
            median=statistics.median(spent),
            p95=float(np.percentile(spent, 95)),
            per_second=1000 * size / statistics.median(spent),
            per_million=1000 * statistics.median(spent) / size,
            speedup=first / statistics.median(spent),
        )
        for name, spent in times.items()
    ]
