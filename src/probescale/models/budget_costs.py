"""Costs of layers in the units of a budget that parameters do not tell: GFLOPs, milliseconds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import psutil
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.config import Head
from probescale.errors import UserError
from probescale.models.cost import Cost
from probescale.models.counting import count_flops
from probescale.models.facts import check_length
from probescale.models.family import Family
from probescale.models.heads import build_on_meta
from probescale.models.latency import measure_latency
from probescale.utils.files import format_size
from probescale.utils.progress import spinner


@dataclass(frozen=True)
class Workload:
    """The forward pass whose cost is asked for: which model, with which head, on how many tokens."""

    config: PreTrainedConfig
    family: Family
    head: Head = "sentence"
    classes: int = 2
    length: int = 128  # tokens of each text
    batch_size: int = 1  # texts, for the time


def measure_costs(units: Collection[str], workload: Workload, model: PreTrainedModel | None = None) -> dict[Any, Cost]:
    """What parameters do not tell, as far as it is among these units: GFLOPs of a text, milliseconds of a batch."""
    costs: dict[str, Cost] = {}
    if "gflops" in units:
        costs["gflops"] = count_flops(
            workload.config, workload.family, workload.length, workload.head, workload.classes
        )
    if "milliseconds" in units:
        costs["milliseconds"] = measure_milliseconds(workload, model)
    return costs


def measure_milliseconds(workload: Workload, model: PreTrainedModel | None = None) -> Cost:
    """Time on this machine, now, in float32. Without a model, one with random weights is timed: it is as fast."""
    check_length(workload.length, workload.family.longest_input(workload.config))
    with spinner("measuring this machine"):
        model = model or _build_random(workload)
        return measure_latency(model, workload.family, workload.length, workload.batch_size)


def _build_random(workload: Workload) -> PreTrainedModel:
    """The model with random weights, if it fits into the free memory."""
    empty = build_on_meta(workload.family, workload.config, workload.head, field="--budget")
    needed, free = 4 * sum(p.numel() for p in empty.parameters()), psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise UserError(
            f"measuring time needs {format_size(needed)} of memory, {format_size(free)} are free",
            field="--budget",
            hint="use a budget in parameters, GFLOPs or MB",
        )
    return type(empty)(workload.config).eval()
