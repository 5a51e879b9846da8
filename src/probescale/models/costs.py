"""What layers cost in the units that a budget names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.models.cost import Cost, parameter_cost
from probescale.models.counting import count_flops
from probescale.models.family import Family
from probescale.models.heads import Head, class_name
from probescale.models.latency import measure_latency
from probescale.models.parameters import Parameters
from probescale.progress import waiting


def costs_of(
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
        found["megabytes"] = parameter_cost(parameters).times(dtype.itemsize / 1e6)
    if "gflops" in units:
        found["gflops"] = count_flops(config, family, length, head, classes)
    if "milliseconds" in units:
        found["milliseconds"] = milliseconds_of(config, family, head, length, batch_size, model)
    return found


def milliseconds_of(
    config: PreTrainedConfig,
    family: Family,
    head: Head,
    length: int,
    batch_size: int,
    model: PreTrainedModel | None = None,
) -> Cost:
    """Measured now, on this machine. A model with random weights is built where none is given: it is as fast."""
    with waiting("measuring this machine"):
        if model is None:
            model = getattr(transformers, class_name(family, config, head) or family.backbone)(config).eval()
        assert model is not None
        return measure_latency(model, family, length, batch_size)
