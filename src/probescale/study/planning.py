"""What a study will take, from a short measurement: time of every job, and disk."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel
from probescale.pipeline.workbench import Workbench, prepare
from probescale.recovery.inputs import build_inputs, select_model_fields
from probescale.study.cells import Cell, Study
from probescale.tasks.task import Task

BATCHES = 4  # that are timed; the first one warms up
FORWARD = 1 / 3  # of a step: the way back costs twice the way there
BYTES = 4  # of a parameter in float32


@dataclass(frozen=True)
class StudyEstimate:
    """The time and disk space that a study needs."""

    seconds: dict[str, float]  # by job, on this machine, one at a time
    disk: int  # bytes that stay: models, and predictions of teachers


def estimate_study(study: Study) -> StudyEstimate:
    """Estimate time and disk space: every model and task is loaded once, and a few batches are trained."""
    seconds: dict[str, float] = {}
    disk = 0
    benches: dict[tuple[str, str], Workbench] = {}
    paces: dict[tuple[str, str], float] = {}  # seconds per row
    for preparation, cells in study.preparations.items():
        first = cells[0]
        key = first.model, first.task
        if key not in benches:
            benches[key] = prepare(first.config)
            paces[key] = seconds_per_row(benches[key].loaded, benches[key].task, first)
        bench = benches[key].with_config(first.config)
        task, loaded = bench.task, bench.loaded
        seconds[preparation] = _preparation_rows(task, loaded, first) * paces[key]
        for cell in cells:
            share = bench.with_config(cell.config).most_layers() / loaded.layers
            rows = _training_rows(task, cell) * cell.config.recovery.epochs + FORWARD * len(task.dev)
            seconds[cell.name] = rows * share * paces[key]
            disk += round(share * count_parameters(loaded.model, loaded.family).total * BYTES)
        disk += _training_rows(task, first) * max(len(task.train.names), 1) * BYTES
        if first.config.recovery.distil and first.config.recovery.start == "teacher":
            disk += count_parameters(loaded.model, loaded.family).total * BYTES
    return StudyEstimate(seconds, disk)


def seconds_per_row(loaded: LoadedModel, task: Task, cell: Cell) -> float:
    """Of one step of training the whole model, texts of usual length."""
    recipe, config = cell.config.recovery, cell.config
    some = task.train.take(range(min(BATCHES * recipe.batch_size, len(task.train))))
    inputs = build_inputs(loaded.tokenizer, some, config.model.max_length)
    loaded.model.train()
    spent, rows = 0.0, 0
    for start in range(0, len(inputs), recipe.batch_size):
        items = [inputs[number] for number in range(start, min(start + recipe.batch_size, len(inputs)))]
        batch = inputs.collate(loaded.tokenizer, items)
        fields = select_model_fields(batch)
        began = time.perf_counter()
        loaded.model(**fields).logits.float().pow(2).mean().backward()
        if start or len(inputs) <= recipe.batch_size:
            spent, rows = spent + time.perf_counter() - began, rows + len(items)
    loaded.model.zero_grad(set_to_none=True)
    loaded.model.eval()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return spent / rows


def _preparation_rows(task: Task, loaded: LoadedModel, cell: Cell) -> float:
    """Rows through the whole model, counted in steps of training: the original, its answers, probing, subnetworks."""
    probed = min(len(task.train), cell.config.probing.max_examples) * len(cell.config.task.probes)
    stitched = min(len(task.train), cell.config.selection.sample) * (loaded.layers + 1) / 2
    answered = _training_rows(task, cell) if cell.config.recovery.distil else 0
    trained = len(task.train) * cell.config.recovery.of_original.epochs
    return trained + FORWARD * (answered + probed + stitched + len(task.dev))


def _training_rows(task: Task, cell: Cell) -> int:
    """Rows that a student learns from."""
    if not cell.config.recovery.distil:
        return len(task.train)
    known = len(task.train) + len(task.unlabelled or ())
    return known * (1 + cell.config.recovery.augment)
