"""Costs of layers in the units of a budget that parameters do not tell: GFLOPs, milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
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
from probescale.models.shrink.units import find_units, with_width
from probescale.utils.files import format_size
from probescale.utils.progress import spinner

NARROW = 4  # times fewer feed-forward units: how much cheaper that is tells what one unit costs


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
    """What parameters do not tell, as far as it is among these units: GFLOPs of a text, milliseconds of a batch.

    Where a stock class can have fewer feed-forward units, what one of them costs is told apart.
    """
    costs: dict[str, Cost] = {}
    if "gflops" in units:
        costs["gflops"] = _with_units(workload, count_gflops(workload), count_gflops)
    if "milliseconds" in units:
        costs["milliseconds"] = _with_units(workload, measure_milliseconds(workload, model), measure_milliseconds)
    return costs


def count_gflops(workload: Workload) -> Cost:
    """GFLOPs of one text."""
    return count_flops(workload.config, workload.family, workload.length, workload.head, workload.classes)


def measure_milliseconds(workload: Workload, model: PreTrainedModel | None = None) -> Cost:
    """Time on this machine, now, in float32. Without a model, one with random weights is timed: it is as fast."""
    check_length(workload.length, workload.family.longest_input(workload.config))
    with spinner("measuring this machine"):
        model = model or _build_random(workload)
        return measure_latency(model, workload.family, workload.length, workload.batch_size)


def _with_units(workload: Workload, whole: Cost, measure: Callable[[Workload], Cost]) -> Cost:
    """The cost of a model with that of a feed-forward unit, which a narrower model tells.

    A unit costs at least nothing and at most its share of a layer, whatever a busy machine says.
    """
    empty = build_on_meta(workload.family, workload.config, workload.head, field="--budget")
    units = find_units(empty, workload.family)
    if units is None or units < NARROW:
        return whole
    fewer = units // NARROW
    narrow = measure(replace(workload, config=with_width(workload.config, workload.family.stack, fewer)))
    saved = (sum(whole.layers) - sum(narrow.layers)) / len(whole.layers)
    per_unit = min(max(saved / (units - fewer), 0.0), min(whole.layers) / units)
    return whole.model_copy(update={"units": units, "per_unit": per_unit})


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
