"""A model in a process of its own, which runs a batch when it is told to and stands still in between.

Threads of PyTorch and of ONNX Runtime wait busily for a while after a pass: in one process, or in one that is not
stopped, they would slow whatever is timed next, up to three times.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from probescale.deploy.formats import EXPORTERS, detect_exporter
from probescale.deploy.inference import InferenceModel
from probescale.deploy.open_model import open_model
from probescale.errors import UserError
from probescale.utils.subprocesses import python_command

SERVE = "from probescale.deploy.model_process import serve; serve(sys.argv[1], int(sys.argv[2]))"


class ModelProcess:
    """Asked for one batch after the other; `with` ends its process."""

    def __init__(self, source: str, threads: int) -> None:
        self.source, self.memory = source, 0  # bytes at most, beyond the libraries
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        words = python_command(SERVE, source, str(threads))
        self.process = psutil.Popen(words, stdin=-1, stdout=-1, stderr=self.said, text=True)

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.said.close()

    def about(self) -> dict[str, Any]:
        """Its format, longest input and size on disk, once it is loaded."""
        return self._answer()

    def run(self, size: int, length: int) -> float:
        """Milliseconds of one pass."""
        self.process.resume()
        print(size, length, file=self.process.stdin, flush=True)
        found = self._answer()
        self.memory = found["memory"]
        return found["milliseconds"]

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.said.seek(0)
            reason = (self.said.read().strip().splitlines() or [f"exit code {code}"])[-1]
            raise UserError(f"the process that ran {self.source} died: {reason}", field="MODEL")
        found = json.loads(line)
        if refused := found.get("refused"):
            raise UserError(refused["message"], field=refused["field"], hint=refused["hint"])
        self.process.suspend()
        return found


def serve(source: str, threads: int) -> None:
    """What the process does: a line of what it is, then a line for every batch that is asked for."""
    import torch

    torch.set_num_threads(threads)
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    say: Callable[[dict[str, Any]], None] = lambda found: print(json.dumps(found), file=answers, flush=True)  # noqa: E731
    if exporter := detect_exporter(Path(source)):
        importlib.import_module(exporter.runtime)  # the memory of a library is not the model's
    memory = Memory()
    try:
        with memory.watched():
            model = open_model(source)
    except UserError as error:
        say({"refused": {"message": error.message, "field": error.field, "hint": error.hint}})
        return
    say({"format": model.format, "longest": model.max_length, "size": weights_size(model)})
    batches: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for line in sys.stdin:
        size, length = map(int, line.split())
        if (size, length) not in batches:
            batches[size, length] = padded(model, size, length)
            with memory.watched():
                model.run(batches[size, length])
        began = time.perf_counter()
        model.run(batches[size, length])
        say({"milliseconds": 1000 * (time.perf_counter() - began), "memory": memory.most})


class Memory:
    """The most bytes that this process took while it was watched, beyond what it had before."""

    def __init__(self) -> None:
        self.own, self.most = psutil.Process(), 0
        self.before = self.own.memory_info().rss

    @contextmanager
    def watched(self) -> Iterator[None]:
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
            self.most = max(self.most, self.own.memory_info().rss - self.before)


def padded(model: InferenceModel, size: int, length: int) -> dict[str, np.ndarray]:
    """A full batch: a text that is repeated until it is long enough, so that no token is padding."""
    text = "The film never quite finds its feet, but its two leads make up for that. " * (length // 8 + 1)
    batch = model.tokenizer([text] * size, truncation=True, max_length=length, return_tensors="np")
    return dict(batch)


def weights_size(model: InferenceModel) -> int:
    """Bytes on disk of the weights, with the graph of an export; 0 for a model of the hub."""
    if model.folder is None:
        return 0
    suffixes = {".safetensors", *(suffix for exporter in EXPORTERS.values() for suffix in exporter.suffixes)}
    return sum(path.stat().st_size for path in model.folder.iterdir() if path.suffix in suffixes)
