"""ONNX: a graph that ONNX Runtime runs, in float32 or with 8-bit weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probescale.deploy.formats.base import Exporter, ExportRecord, exporter
from probescale.deploy.inference import RunBatch
from probescale.deploy.onnx.graph import refuse_generators, write_graph, write_int8
from probescale.deploy.onnx.session import can_run, open_session
from probescale.models.loading import LoadedModel
from probescale.tasks.kinds import Kind
from probescale.utils.progress import console, spinner


@exporter("onnx")
class OnnxExporter(Exporter):
    """A graph for ONNX Runtime, any batch and any length; `--int8` for 8-bit weights."""

    file = "model.onnx"
    suffixes = (".onnx", ".data")
    runtime = "onnxruntime"

    def check(self, loaded: LoadedModel) -> None:
        refuse_generators(loaded)

    def write(self, loaded: LoadedModel, kind: Kind | None, folder: Path, *, int8: bool) -> None:
        with spinner("writing the graph"):
            write_graph(loaded, kind, folder / self.file, fused=int8)

    def open(self, folder: Path, record: ExportRecord) -> RunBatch:
        session = open_session(folder / self.file, int8=record.int8)

        def run(batch: dict[str, np.ndarray]) -> np.ndarray:
            return np.asarray(session.run(None, {name: batch[name] for name in record.inputs})[0])

        return run

    def quantize(self, folder: Path) -> bool:
        small = folder / "int8.onnx"
        with spinner("writing 8-bit weights"):
            write_int8(folder / self.file, small)
        if not can_run(small):
            small.unlink()
            console.print("note: this machine's processor cannot run 8-bit products; exported in float32")
            return False
        for old in folder.glob(f"{self.file}*"):
            old.unlink()
        small.rename(folder / self.file)
        can_run.cache_clear()
        return True
