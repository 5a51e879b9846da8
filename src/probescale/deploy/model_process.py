"""A model in its own process, which runs one batch per request and is stopped in between.

Threads of PyTorch and of ONNX Runtime wait busily for a while after a pass. In the same process, or in one that is not
stopped, they would slow down what is timed next, up to three times.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from probescale.deploy.formats import EXPORTERS, detect_exporter
from probescale.deploy.inference import InferenceModel
from probescale.deploy.open_model import open_model
from probescale.errors import UserError
from probescale.utils.subprocesses import die_with_parent, python_command

SERVE = "from probescale.deploy.model_process import serve; serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"


class ModelProcess:
    """Runs a model in its own process, one batch at a time; leaving `with` ends the process."""

    def __init__(self, source: str, threads: int) -> None:
        self.source, self.peak_memory = source, 0  # bytes, beyond those of the libraries
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = python_command(SERVE, source, str(threads), str(os.getpid()))
        self.process = psutil.Popen(command, stdin=-1, stdout=-1, stderr=self.stderr, text=True)

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.process.communicate()
        self.stderr.close()

    def read_facts(self) -> dict[str, Any]:
        """Format, longest input and size on disk, once the model is loaded."""
        return self._read_reply()

    def run(self, size: int, length: int) -> float:
        """Run one pass; returns its milliseconds."""
        try:
            self.process.resume()
            print(size, length, file=self.process.stdin, flush=True)
        except (psutil.NoSuchProcess, BrokenPipeError) as error:
            raise self._died() from error
        reply = self._read_reply()
        self.peak_memory = reply["memory"]
        return reply["milliseconds"]

    def _read_reply(self) -> dict[str, Any]:
        """The next line of the process; it is then stopped until the next request."""
        line = self.process.stdout.readline()
        if not line:
            raise self._died()
        reply = json.loads(line)
        if refused := reply.get("refused"):
            raise UserError(refused["message"], field=refused["field"], hint=refused["hint"])
        try:
            self.process.suspend()
        except psutil.NoSuchProcess as error:
            raise self._died() from error
        return reply

    def _died(self) -> UserError:
        """The error that says why the process ended: its last words, or its exit code."""
        code = self.process.wait()
        self.stderr.seek(0)
        reason = (self.stderr.read().strip().splitlines() or [f"exit code {code}"])[-1]
        return UserError(f"the process that ran {self.source} died: {reason}", field="MODEL")


def serve(source: str, threads: int, parent: int) -> None:
    """Run in the process: print a line of facts about the model, then one line per batch that stdin requests."""
    die_with_parent(parent)
    import torch

    torch.set_num_threads(threads)
    replies, sys.stdout = sys.stdout, sys.stderr  # what a library prints is not a reply
    reply: Callable[[dict[str, Any]], None] = lambda fields: print(json.dumps(fields), file=replies, flush=True)  # noqa: E731
    if exporter := detect_exporter(Path(source)):
        importlib.import_module(exporter.runtime)  # before measuring: a library's memory is not the model's
    memory = PeakMemory()
    try:
        with memory.measure():
            model = open_model(source)
    except UserError as error:
        reply({"refused": {"message": error.message, "field": error.field, "hint": error.hint}})
        return
    reply({"format": model.format, "longest": model.max_length, "size": weights_size(model)})
    batches: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for line in sys.stdin:
        size, length = map(int, line.split())
        if (size, length) not in batches:
            batches[size, length] = build_batch(model, size, length)
            with memory.measure():
                model.run(batches[size, length])
        started = time.perf_counter()
        model.run(batches[size, length])
        reply({"milliseconds": 1000 * (time.perf_counter() - started), "memory": memory.peak})


class PeakMemory:
    """The peak memory of this process during `measure`, in bytes, beyond what it had at first."""

    def __init__(self) -> None:
        self.process, self.peak = psutil.Process(), 0
        self.before = self.process.memory_info().rss

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Watch the memory of the block."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,))
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(0.002):
            self.peak = max(self.peak, self.process.memory_info().rss - self.before)


def build_batch(model: InferenceModel, size: int, length: int) -> dict[str, np.ndarray]:
    """A batch of this size and length without padding."""
    text = "The film never quite finds its feet, but its two leads make up for that. " * (length // 8 + 1)
    batch = model.tokenizer([text] * size, truncation=True, max_length=length, return_tensors="np")
    return dict(batch)


def weights_size(model: InferenceModel) -> int:
    """Bytes on disk of the weights, for an export with its graph; 0 for a model of the hub."""
    if model.folder is None:
        return 0
    suffixes = {".safetensors", *(suffix for exporter in EXPORTERS.values() for suffix in exporter.suffixes)}
    return sum(path.stat().st_size for path in model.folder.iterdir() if path.suffix in suffixes)
