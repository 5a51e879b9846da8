"""bench(): how fast models and formats are, side by side in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from probescale.children import python
from probescale.errors import UserError
from probescale.files import Record
from probescale.progress import progress
from probescale.shipping.ready import Ready, open_model

WARM_UP = 3
REST = 0.02  # seconds before a pass: threads of the one before it may still be waiting busily
# The most memory that a model's process takes while it loads and answers, beyond what the libraries took before.
MEMORY = """
import json, sys, threading
import psutil
from probescale.shipping.bench import padded
from probescale.shipping.ready import open_model
if sys.argv[2] == "onnx": import onnxruntime
own = psutil.Process()
before = most = own.memory_info().rss
done = threading.Event()
def watch():
    global most
    while not done.wait(0.002): most = max(most, own.memory_info().rss)
watcher = threading.Thread(target=watch)
watcher.start()
model = open_model(sys.argv[1])
for size, length in json.loads(sys.argv[3]): model.run(padded(model, size, length))
done.set()
watcher.join()
print(max(most, own.memory_info().rss) - before)
"""


class Timed(Record):
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


class Benched(Record):
    threads: int
    passes: int
    rows: tuple[Timed, ...]
    size: dict[str, int]  # bytes on disk of the weights
    memory: dict[str, int]  # bytes at most, beyond the libraries


def bench(
    sources: Sequence[str], batch_sizes: Sequence[int] = (1, 32), lengths: Sequence[int] = (32, 128), passes: int = 20
) -> Benched:
    """All models in turn, pass by pass: what else the machine does slows them all alike."""
    if len(set(sources)) < len(sources):
        raise UserError("a model is given twice", field="MODEL", hint="give each once")
    import torch

    models = [open_model(source) for source in sources]
    shapes = [(size, length) for size in batch_sizes for length in lengths]
    for one in models:
        if too_long := [length for length in lengths if length > one.longest]:
            raise UserError(f"{one.name} takes at most {one.longest} tokens, not {too_long[0]}", field="--length")
    rows: list[Timed] = []
    with progress("timing", len(shapes) * (WARM_UP + passes)) as advance:
        for size, length in shapes:
            rows += _in_turn(models, sources, size, length, passes, advance)
    return Benched(
        threads=torch.get_num_threads(),
        passes=passes,
        rows=tuple(rows),
        size={source: _size(one) for source, one in zip(sources, models, strict=True)},
        memory={source: _memory(source, one, shapes) for source, one in zip(sources, models, strict=True)},
    )


def _in_turn(
    models: Sequence[Ready], names: Sequence[str], size: int, length: int, passes: int, advance: Callable[[int], None]
) -> list[Timed]:
    batches = [padded(one, size, length) for one in models]
    times: list[list[float]] = [[] for _ in models]
    for _ in range(WARM_UP + passes):
        for one, batch, spent in zip(models, batches, times, strict=True):
            time.sleep(REST)
            began = time.perf_counter()
            one.run(batch)
            spent.append(1000 * (time.perf_counter() - began))
        advance(1)
    times = [spent[WARM_UP:] for spent in times]
    first = statistics.median(times[0])
    return [
        Timed(
            model=name,
            format=one.format,
            batch_size=size,
            length=length,
            median=statistics.median(spent),
            p95=float(np.percentile(spent, 95)),
            per_second=1000 * size / statistics.median(spent),
            per_million=1000 * statistics.median(spent) / size,
            speedup=first / statistics.median(spent),
        )
        for one, name, spent in zip(models, names, times, strict=True)
    ]


def padded(model: Ready, size: int, length: int) -> dict[str, np.ndarray]:
    """A full batch: a text that is repeated until it is long enough, so that no token is padding."""
    text = "The film never quite finds its feet, but its two leads make up for that. " * (length // 8 + 1)
    batch = model.tokenizer([text] * size, truncation=True, max_length=length, return_tensors="np")
    return dict(batch)


def _size(model: Ready) -> int:
    """Of the weights, with their graph."""
    if model.files is None:
        return 0
    folder = Path(model.files)
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".onnx", ".data"))


def _memory(source: str, model: Ready, shapes: Sequence[tuple[int, int]]) -> int:
    kind = "onnx" if model.format.startswith("onnx") else "pytorch"
    words = python(MEMORY, source, kind, json.dumps(list(shapes)))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"the process that measures the memory of {source} died: {reason}", field="MODEL")
    return int(done.stdout.split()[-1])
