"""What layers cost in the units that a budget names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psutil
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.errors import UserError
from probescale.models.cost import Cost, parameter_cost
from probescale.models.counting import count_flops
from probescale.models.facts import check_length
from probescale.models.family import Family
from probescale.models.heads import Head, build_on_meta
from probescale.models.latency import measure_latency
from probescale.models.parameters import Parameters
from probescale.utils.files import format_size
from probescale.utils.progress import spinner


def measure_costs(
    units: Collection[str],
    config: PreTrainedConfig,
    family: Family,
    parameters: Parameters,
    *,
    head: Head = "sentence",
    classes: int = 2,
    length: int = 128,
    batch_size: int = 1,
    dtype: torch.dtype = torch.float32,
    model: PreTrainedModel | None = None,
) -> dict[Any, Cost]:
    """GFLOPs of one text, megabytes on disk, milliseconds of a batch."""
    found: dict[str, Cost] = {}
    if "megabytes" in units:
        found["megabytes"] = parameter_cost(parameters).scaled(dtype.itemsize / 1e6)
    if "gflops" in units:
        found["gflops"] = count_flops(config, family, length, head, classes)
    if "milliseconds" in units:
        found["milliseconds"] = measure_milliseconds(config, family, head, length, batch_size, model)
    return found


def measure_milliseconds(
    config: PreTrainedConfig,
    family: Family,
    head: Head,
    length: int,
    batch_size: int,
    model: PreTrainedModel | None = None,
) -> Cost:
    """Measured now, on this machine, in float32. Where no model is given one with random weights is built: as fast."""
    check_length(length, family.longest_input(config))
    with spinner("measuring this machine"):
        return measure_latency(model or _random(config, family, head), family, length, batch_size)


def _random(config: PreTrainedConfig, family: Family, head: Head) -> PreTrainedModel:
    empty = build_on_meta(family, config, head, field="--budget")
    needed, free = 4 * sum(p.numel() for p in empty.parameters()), psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise UserError(
            f"measuring time needs {format_size(needed)} of memory, {format_size(free)} are free",
            field="--budget",
            hint="use a budget in parameters, GFLOPs or MB",
        )
    return type(empty)(config).eval()
