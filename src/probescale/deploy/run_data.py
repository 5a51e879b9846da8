"""The dev set that the figures of a run were measured on, found again and recognised by its hash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probescale.errors import UserError
from probescale.models.loading import load_encoder
from probescale.pipeline.rungs import MODELS, RUNGS
from probescale.pipeline.validate import load_config
from probescale.recovery.embedder import Embedder
from probescale.recovery.result import ORIGINAL, RunResult
from probescale.tasks.task import Task, load_task


@dataclass(frozen=True)
class RunData:
    """The task of a finished run, with the same dev set, and what its model reached on it."""

    task: Task
    max_length: int
    recorded: float


def load_run_data(model: Path, labels: tuple[str, ...]) -> RunData:
    """The data of the run that a model folder belongs to; an error says why nothing can be measured on it.

    `labels`: in the order of the model's outputs.
    """
    run = model.parent.parent if model.parent.name == MODELS else model.parent
    in_ladder = model.parent.name == MODELS
    if not (in_ladder or model.name in ("model", ORIGINAL)) or not (run / "config.yaml").is_file():
        raise UserError("the model is not in a run folder")
    records = run / RUNGS / model.name if in_ladder else run
    config, result = load_config(run / "config.yaml"), RunResult.load(records / "metrics.json")
    task = load_task(config.task, config.seed)
    if task.kind.named and sorted(labels) == sorted(task.train.names):
        task = task.with_names(labels)
    if task.kind.encodes:  # what is right is what the original says
        source = config.model
        loaded = load_encoder(source.source, source.revision, allow_pickle=source.allow_pickle)
        task = task.with_embeddings(Embedder(loaded, source.max_length))
    if task.fingerprints["dev"] != result.provenance.get("data_sha256", {}).get("dev"):
        raise UserError(f"the data at {config.task.train.source} is not what the run was measured on")
    measured = result.original if model.name == ORIGINAL else result.subnetwork
    return RunData(task, config.model.max_length, measured.value)
