"""Time models and formats side by side: latency, throughput, memory and size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from probescale.deploy.model_folder import list_models
from probescale.deploy.model_process import ModelProcess
from probescale.errors import UserError
from probescale.utils.files import Record
from probescale.utils.progress import progress

WARM_UP = 3


class Timing(Record):
    """Latency and throughput of one model with one shape of batch."""

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
    """Timings of all models with all shapes, and their sizes."""

    threads: int
    passes: int
    rows: tuple[Timing, ...]
    size: dict[str, int]  # bytes on disk of the weights
    memory: dict[str, int]  # peak bytes, beyond those of the libraries


def bench(
    sources: Sequence[str], batch_sizes: Sequence[int] = (1, 32), lengths: Sequence[int] = (32, 128), passes: int = 20
) -> BenchResult:
    """Time every model with every batch size and length; of a ladder, every rung.

    The models take turns, pass by pass, so that other load on the machine slows all of them alike.
    """
    sources = [model for source in sources for model in list_models(source)]
    if len(set(sources)) < len(sources):
        raise UserError("a model is given twice", field="MODEL", hint="give each once")
    import torch

    threads, shapes = torch.get_num_threads(), [(size, length) for size in batch_sizes for length in lengths]
    with ExitStack() as running:
        models = [running.enter_context(ModelProcess(source, threads)) for source in sources]
        facts = {model.source: model.read_facts() for model in models}
        for name, fact in facts.items():
            if too_long := [length for length in lengths if length > fact["longest"]]:
                raise UserError(f"{name} takes at most {fact['longest']} tokens, not {too_long[0]}", field="--length")
        rows: list[Timing] = []
        with progress("timing", len(shapes) * (WARM_UP + passes)) as advance:
            for size, length in shapes:
                times = _time_in_turn(models, size, length, passes, advance)
                rows += _summarise(times, {name: fact["format"] for name, fact in facts.items()}, size, length)
        memory = {model.source: model.peak_memory for model in models}
    size = {name: fact["size"] for name, fact in facts.items()}
    return BenchResult(threads=threads, passes=passes, rows=tuple(rows), size=size, memory=memory)


def _time_in_turn(
    models: Sequence[ModelProcess], size: int, length: int, passes: int, advance: Callable[[int], None]
) -> dict[str, list[float]]:
    """Milliseconds of every pass after the warm-up, by model."""
    times: dict[str, list[float]] = {model.source: [] for model in models}
    for _ in range(WARM_UP + passes):
        for model in models:
            times[model.source].append(model.run(size, length))
        advance(1)
    return {name: passes_ms[WARM_UP:] for name, passes_ms in times.items()}


def _summarise(times: dict[str, list[float]], formats: dict[str, str], size: int, length: int) -> list[Timing]:
    """One timing per model for this shape."""
    first = statistics.median(next(iter(times.values())))
    return [
        Timing(
            model=name,
            format=formats[name],
            batch_size=size,
            length=length,
            median=statistics.median(passes_ms),
            p95=float(np.percentile(passes_ms, 95)),
            per_second=1000 * size / statistics.median(passes_ms),
            per_million=1000 * statistics.median(passes_ms) / size,
            speedup=first / statistics.median(passes_ms),
        )
        for name, passes_ms in times.items()
    ]
