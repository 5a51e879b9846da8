"""Count parameters and operations of a model and its parts, from the config alone if need be."""

from __future__ import annotations

from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.config import Head
from probescale.errors import UserError, first_line
from probescale.models.cost import Cost
from probescale.models.facts import check_length
from probescale.models.family import Family, backbone
from probescale.models.heads import build_on_meta
from probescale.models.parameters import Parameters


def count_parameters(model: PreTrainedModel, family: Family) -> Parameters:
    """Parameters of each part of a model, in memory or on the meta device; shared tensors count once."""
    body = dict(backbone(model).named_modules())
    inside = [p for path in family.embeddings if path in body for p in body[path].parameters()]
    embeddings = sum(p.numel() for p in {id(p): p for p in inside}.values())
    layers = _block_sizes(family.layers(model), family.stack.first_block_only)
    blocks = family.decoder_layers(model)
    decoder = _block_sizes(blocks, family.decoder.first_block_only) if blocks is not None and family.decoder else ()
    total = sum(p.numel() for p in model.parameters())
    rest = total - embeddings - sum(layers) - sum(decoder)
    return Parameters(
        embeddings=embeddings, layers=layers, rest=rest, decoder=decoder, fixed=family.fixed(model.config)
    )


def measure_megabytes(model: PreTrainedModel) -> float:
    """Megabytes of the weights on disk, in the precision that the model has; shared tensors count once."""
    return sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6


def _block_sizes(blocks: torch.nn.ModuleList, shared: tuple[str, ...]) -> tuple[int, ...]:
    """Parameters of each block, without the shared ones that the first block stores for all."""
    return tuple(sum(p.numel() for name, p in block.named_parameters() if name not in shared) for block in blocks)


def count_from_config(
    config: PreTrainedConfig,
    family: Family,
    classes: int = 2,
    head: Head = "sentence",
    *,
    field: str = "model.source",
) -> Parameters:
    """Parameters of the model that this config describes, counted without memory for weights."""
    return count_parameters(build_on_meta(family, config, head, classes, field=field), family)


def count_flops(
    config: PreTrainedConfig,
    family: Family,
    length: int,
    head: Head = "none",
    classes: int = 2,
    *,
    field: str = "--budget",
) -> Cost:
    """GFLOPs of one text of this length. As usual, only matrix products count, with two operations per multiplication.

    A decoder is counted for as many tokens. The head's matrices are counted once per text, or once per token where the
    head has an output for every token.
    """
    check_length(length, family.longest_input(config))
    model = build_on_meta(family, config, head, classes, field=field)
    body = backbone(model)
    model.config.pad_token_id = None  # classes would look for padding among ids, which have no values here
    ids = torch.zeros((1, length), dtype=torch.long, device="meta")
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if family.decoder_layers(model) is not None else {})
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            body(**inputs)
    except Exception as error:  # experts chosen by values, or custom kernels
        raise UserError(
            f"the operations of {type(model).__name__} cannot be counted without values: {first_line(error)}",
            field=field,
            hint="use a budget in parameters, MB or ms",
        ) from error
    flops = {name: sum(by_operation.values()) for name, by_operation in counter.get_flop_counts().items()}
    head_flops = 0
    if body is not model:
        in_body = {id(p) for p in body.parameters()}
        matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in in_body]
        output = model.get_output_embeddings()
        if output is not None and id(output.weight) in in_body:  # tied: no extra parameters, but extra operations
            matrices.append(cast("torch.nn.Parameter", output.weight))
        per_token = head in ("token", "lm") or family.mean_of_token_logits
        head_flops = sum(2 * p.numel() for p in matrices) * (length if per_token else 1)
    numbers = range(family.count_layers(config))
    layers = tuple(_block_flops(flops, family.stack.blocks, number) / 1e9 for number in numbers)
    return Cost(fixed=(flops["Global"] + head_flops) / 1e9 - sum(layers), layers=layers)


def _block_flops(flops: dict[str, int], blocks: str, number: int) -> int:
    """Operations of one block; names begin with the class of the called module."""
    return next((count for name, count in flops.items() if name.partition(".")[2] == f"{blocks}.{number}"), 0)
