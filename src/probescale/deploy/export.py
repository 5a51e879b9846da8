"""export(): to ONNX, every step compared with the PyTorch model before anything is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probescale.config import RunConfig
from probescale.deploy.evaluation import evaluate_metric
from probescale.deploy.inference import (
    GRAPH,
    STATES,
    InferenceModel,
    input_names,
    load_pytorch,
    open_onnx,
    wrap_pytorch,
)
from probescale.deploy.onnx.graph import write_graph, write_int8
from probescale.deploy.onnx.session import can_run
from probescale.errors import ProofFailed, UserError
from probescale.models.loading import quiet_transformers
from probescale.models.surgery import METADATA_FILE
from probescale.models.tokenizers import reset_tokenizer
from probescale.pipeline.validate import load_config
from probescale.tasks.task import Task, load_task
from probescale.utils.files import Record, atomic_folder, check_output_folder, read_json, write_json
from probescale.utils.progress import console, spinner
from probescale.utils.resources import report_shortage

SAME = 1e-3  # of the largest number of an output: float32 adds up in another order
TEXTS = (
    "Fine.",
    "The film never quite finds its feet, but the two leads make up for it.",
    "In 1998, the committee (of 12 members) published its findings; few read them, and nobody acted. " * 4,
)


class ExportRecord(Record):
    """What was written, and how it compares. Recorded in its probescale.json."""

    int8: bool
    kind: str
    labels: tuple[str, ...]
    inputs: tuple[str, ...]
    longest: int
    largest_difference: float  # of the float32 graph's outputs, relative to the largest number
    metric: str | None = None  # the task's, where the run's data is at hand
    value_pytorch: float | None = None
    value: float | None = None


def export(
    source: str, out: Path, *, int8: bool = False, tolerance: float = 0.01, overwrite: bool = False
) -> ExportRecord:
    """The graph with its tokenizer and config in a folder; `tolerance` is what the task's metric may lose."""
    out = check_output_folder(out, overwrite=overwrite, markers=[METADATA_FILE])
    folder, config = find_model_folder(source)
    loaded = load_pytorch(folder, source, "MODEL")
    ours = wrap_pytorch(loaded)
    with report_shortage(out), atomic_folder(out) as partial:
        with spinner("writing the graph"):
            write_graph(loaded, ours.kind, partial / GRAPH, fused=int8)
        with quiet_transformers():
            loaded.model.config.save_pretrained(partial)
            reset_tokenizer(loaded.tokenizer).save_pretrained(partial)
        about = ExportRecord(
            int8=False,
            kind=ours.kind.name if ours.kind else STATES,
            labels=ours.labels,
            inputs=tuple(input_names(loaded)),
            longest=ours.max_length,
            largest_difference=0.0,
        )
        metadata = folder / METADATA_FILE
        record = read_json(metadata, field="MODEL") if metadata.is_file() else {"parent": source}
        graph = _reopened(partial, record, about)
        about = about.model_copy(update={"largest_difference": _difference(ours, graph)})
        if int8 and _smaller(partial):
            about = about.model_copy(update={"int8": True})
        if config is not None:
            task = load_task(config.task, config.seed)
            graph = _reopened(partial, record, about)
            about = about.model_copy(update=_measured(ours, graph, task, config.model.max_length, tolerance))
        _reopened(partial, record, about)
    return about


def find_model_folder(source: str) -> tuple[Path, RunConfig | None]:
    """The model's folder; and the configuration, where it is a run's."""
    folder = Path(source)
    if (folder / "model" / "config.json").is_file():
        folder = folder / "model"
    settings = folder.parent / "config.yaml"
    return folder, load_config(settings) if folder.name == "model" and settings.is_file() else None


def _reopened(folder: Path, record: dict[str, Any], about: ExportRecord) -> InferenceModel:
    write_json(folder / METADATA_FILE, record | {"onnx": about.model_dump(mode="json")})
    return open_onnx(folder, field="--out")


def _difference(ours: InferenceModel, graph: InferenceModel) -> float:
    """The largest one over texts short and long, alone and together; refused where it is more than noise."""
    largest = 0.0
    for texts in ((TEXTS[0],), (TEXTS[1],), TEXTS, (TEXTS[2],) * 2):
        batch = dict(
            ours.tokenizer(list(texts), padding=True, truncation=True, max_length=ours.max_length, return_tensors="np")
        )
        wanted, found = ours.run(batch), graph.run(batch)
        if wanted.shape != found.shape:
            raise ProofFailed(f"the graph answers {found.shape} where the model answers {wanted.shape}")
        seen = batch["attention_mask"].astype(bool) if wanted.ndim == 3 else slice(None)
        apart = np.abs(wanted - found)[seen].max() / max(np.abs(wanted).max(), 1e-9)
        largest = max(largest, float(apart))
    if not largest <= SAME:
        raise ProofFailed(f"the graph's answers differ from the model's by {largest:.2g} of the largest one")
    return largest


def _smaller(folder: Path) -> bool:
    """Replace the graph by its 8-bit form, if this machine can run it."""
    small = folder / "int8.onnx"
    with spinner("writing 8-bit weights"):
        write_int8(folder / GRAPH, small)
    if not can_run(small):
        small.unlink()
        console.print("note: this machine's processor cannot run 8-bit products; exported in float32")
        return False
    for old in folder.glob(f"{GRAPH}*"):
        old.unlink()
    small.rename(folder / GRAPH)
    can_run.cache_clear()
    return True


def _measured(
    ours: InferenceModel, graph: InferenceModel, task: Task, max_length: int, tolerance: float
) -> dict[str, Any]:
    before, after = (evaluate_metric(one, task, max_length) for one in (ours, graph))
    if task.measure.loss(before, after) > tolerance:
        raise UserError(
            f"{task.metric} on {task.dev_split} falls from {100 * before:.2f} to {100 * after:.2f}, by more than "
            f"{100 * tolerance:g} points",
            field="--tolerance",
            hint="nothing was written; allow more, or export without --int8",
        )
    return {"metric": task.metric, "value_pytorch": before, "value": after}
