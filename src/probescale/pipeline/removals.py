"""Take layers out by the task's loss: calibration data in the form that the measurement needs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probescale.errors import UserError
from probescale.models.batching import batches_by_tokens
from probescale.models.loading import LoadedModel
from probescale.models.subsets import Subset
from probescale.pipeline.workbench import Workbench
from probescale.probing.removals import CalibrationBatch, measure_removals
from probescale.probing.scores import ProbeScores, Removals
from probescale.recovery.inputs import Inputs, TextInputs, build_inputs, select_model_fields, select_rows
from probescale.recovery.objective import has_label
from probescale.tasks.sampling import sample, spread

CALIBRATION_TOKENS = 4096  # of running text; fewer make the choice noisy, more make it slow
ROUNDS = 8  # batches at least: candidates are compared on a part of them first
EVERY = 2  # of the tokens of running text, whose loss counts: the head costs as much as many layers


def take_out_layers(bench: Workbench, loaded: LoadedModel, scores: ProbeScores, path: Path) -> ProbeScores:
    """The scores with the order of removals that the strategies need, kept in the scores' file after every step."""
    fixed = (*loaded.family.fixed(loaded.model.config), *bench.structure.keep)
    constraints = bench.constraints(bench.smallest_shrink)

    def enough(kept: Subset) -> bool:
        return constraints.allow(kept) and len(kept) <= bench.most_layers()

    def save(removals: Removals) -> None:
        scores.model_copy(update={"removals": removals}).save(path)

    batches = calibration_batches(bench, loaded)
    found = measure_removals(loaded, batches, fixed=fixed, enough=enough, so_far=scores.removals, save=save)
    return scores.model_copy(update={"removals": found})


def calibration_batches(bench: Workbench, loaded: LoadedModel) -> list[CalibrationBatch]:
    """Batches of the calibration data, and the loss of the task's kind on each."""
    if not loaded.head_is_trained:
        raise UserError(
            "drop_loss takes layers out by the loss of a model that was trained for the task",
            field="selection.strategy",
            hint="use `probescale run`, which trains it first, or another strategy",
        )
    config, data = bench.config, bench.task.calibration
    if bench.task.kind.unit != "token":
        data = sample(data, config.selection.sample, config.seed)
    inputs = build_inputs(loaded.tokenizer, data, config.model.max_length)
    labels = torch.from_numpy(inputs.labels(data.row_labels))
    running = isinstance(inputs, TextInputs)
    numbers = _spread(inputs) if running else inputs.tokens.by_length
    size = min(config.probing.batch_tokens, max(int(inputs.tokens.lengths[numbers].sum()) // ROUNDS, 1))
    batches = [numbers[here] for here in batches_by_tokens(inputs.tokens.lengths[numbers], size)]
    order = np.random.default_rng(config.seed).permutation(len(batches))  # the first round sees all lengths
    return [_prepare(bench, loaded, inputs, labels, batches[number]) for number in order]


def _spread(inputs: Inputs) -> np.ndarray:
    """Blocks from all over the text."""
    count = min(max(CALIBRATION_TOKENS // int(inputs.tokens.lengths.max()), 1), len(inputs))
    chosen = np.array(spread(len(inputs), count))
    return chosen[np.argsort(-inputs.tokens.lengths[chosen], kind="stable")]


def _prepare(
    bench: Workbench, loaded: LoadedModel, inputs: Inputs, labels: Tensor, numbers: Sequence[int] | np.ndarray
) -> CalibrationBatch:
    batch = inputs.collate(loaded.tokenizer, [inputs[int(number)] for number in numbers])
    fields = select_model_fields(batch)
    if isinstance(inputs, TextInputs) and "logits_to_keep" in inspect.signature(loaded.model.forward).parameters:
        places = torch.arange(EVERY - 1, batch["input_ids"].shape[1], EVERY)
        fields, batch = {**fields, "logits_to_keep": places}, {**batch, "rows": batch["rows"][:, places]}
    return CalibrationBatch(fields, partial(_sum_losses, bench, loaded, labels, batch))


def _sum_losses(
    bench: Workbench, loaded: LoadedModel, labels: Tensor, batch: dict[str, Tensor], logits: Tensor
) -> tuple[float, int]:
    answers, rows = select_rows(loaded, logits, {name: value.to(logits.device) for name, value in batch.items()})
    known = labels[rows.cpu()].to(answers.device)
    losses = bench.task.kind.loss.of_labels(answers, known)
    return float(losses.sum()), int(has_label(known).sum())
