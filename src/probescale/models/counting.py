"""Parameters and operations of a model and of every subnetwork of it, from the config alone (no weights needed)."""

from __future__ import annotations

from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.errors import UserError, first_line
from probescale.models.cost import Cost
from probescale.models.facts import check_length
from probescale.models.family import Family, backbone
from probescale.models.heads import Head, build_on_meta
from probescale.models.parameters import Parameters


def count_parameters(model: PreTrainedModel, family: Family) -> Parameters:
    """Count a model in memory or on the meta device; shared tensors count once."""
    body = dict(backbone(model).named_modules())
    inside = [p for path in family.embeddings if path in body for p in body[path].parameters()]
    embeddings = sum(p.numel() for p in {id(p): p for p in inside}.values())
    layers = _sizes(family.layers(model), family.stack.first_block_only)
    second = family.decoder_layers(model)
    decoder = _sizes(second, family.decoder.first_block_only) if second is not None and family.decoder else ()
    total = sum(p.numel() for p in model.parameters())
    rest = total - embeddings - sum(layers) - sum(decoder)
    return Parameters(
        embeddings=embeddings, layers=layers, rest=rest, decoder=decoder, fixed=family.fixed(model.config)
    )


def _sizes(blocks: torch.nn.ModuleList, shared: tuple[str, ...]) -> tuple[int, ...]:
    """Parameters of each block; what serves all blocks is not the first one's."""
    return tuple(sum(p.numel() for name, p in block.named_parameters() if name not in shared) for block in blocks)


def count_from_config(
    config: PreTrainedConfig,
    family: Family,
    classes: int = 2,
    head: Head = "sentence",
    *,
    field: str = "model.source",
) -> Parameters:
    """Count the model that this config describes, without allocating it."""
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
    """GFLOPs of one text of this length: two operations per multiplication, matrix products alone, as all tools count.

    A decoder's side of an encoder-decoder is counted for as many tokens. The head's matrices are counted once a text,
    or once a token where it answers every token.
    """
    check_length(length, family.longest_input(config))
    model = build_on_meta(family, config, head, classes, field=field)
    body = backbone(model)
    model.config.pad_token_id = None  # nobody looks for padding among tokens that have no values
    ids = torch.zeros((1, length), dtype=torch.long, device="meta")
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if family.decoder_layers(model) is not None else {})
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            body(**inputs)
    except Exception as error:  # experts that depend on the tokens, own kernels: nothing runs without values
        raise UserError(
            f"the operations of {type(model).__name__} cannot be counted without values: {first_line(error)}",
            field=field,
            hint="use a budget in parameters, MB or ms",
        ) from error
    counts = {name: sum(by_operation.values()) for name, by_operation in counter.get_flop_counts().items()}
    head_flops = 0
    if body is not model:
        within = {id(p) for p in body.parameters()}
        matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in within]
        output = model.get_output_embeddings()
        if output is not None and id(output.weight) in within:  # tied: no matrix of its own, but work of its own
            matrices.append(cast("torch.nn.Parameter", output.weight))
        per_token = head in ("token", "lm") or family.mean_of_token_logits
        head_flops = sum(2 * p.numel() for p in matrices) * (length if per_token else 1)
    numbers = range(family.count_layers(config))
    layers = tuple(_block_flops(counts, family.stack.blocks, number) / 1e9 for number in numbers)
    return Cost(fixed=(counts["Global"] + head_flops) / 1e9 - sum(layers), layers=layers)


def _block_flops(counts: dict[str, int], blocks: str, number: int) -> int:
    """Operations of one block; names begin with the class of the module that was called."""
    return next((count for name, count in counts.items() if name.partition(".")[2] == f"{blocks}.{number}"), 0)
