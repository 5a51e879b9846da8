"""What a model answers when only some of its layers act, found without cutting anything: one side of the proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from probescale.errors import ProofFailed, first_line
from probescale.models.block_calls import input_state, record_calls, removing_hooks
from probescale.models.family import Family, backbone_prefix
from probescale.models.proof import child

TOLERANCE = 1e-5  # of the largest number: the same operations on the same weights
NARROW_TOLERANCE = 1e-4  # the same where matrices have lost columns: sums are added up in another order
TOKENS = 12
# What a block says of its sizes; those of weights are checked when they are loaded.
SIZES = ("in_features", "out_features", "embedding_dim", "n_heads", "inner_dim", "num_key_value_groups")


@dataclass(frozen=True)
class Reference:
    """Inputs, and what the saved model has to answer to them."""

    route: str
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    settings: list[dict[str, str]]  # of every layer, stack by stack: short inputs do not show a wrong window
    tolerance: float = TOLERANCE  # relative to the largest number of an output; 0: every bit is the same


def find_stack_paths(model: PreTrainedModel, family: Family) -> list[str]:
    """Full paths of the stacks that this class has."""
    stacks = [
        stack for stack in (family.stack, family.decoder) if stack is not None and stack.find_in(model) is not None
    ]
    return [f"{backbone_prefix(model)}{stack.blocks}" for stack in stacks]


def example_inputs(model: PreTrainedModel, family: Family) -> dict[str, Tensor]:
    """Tokens drawn at random, the second row padded where the model has a padding token; always the same."""
    config = model.config
    special = {getattr(config, f"{kind}_token_id", None) for kind in ("pad", "bos", "cls", "sep", "decoder_start")}
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    ordinary = torch.tensor([i for i in range(min(config.vocab_size, 20_000)) if i not in {*special, *ends}])
    rows = 1 if config.pad_token_id is None else 2
    tokens = min(TOKENS, family.longest_input(config) or TOKENS)
    draw = torch.Generator().manual_seed(0)
    ids = ordinary[torch.randint(len(ordinary), (rows, tokens), generator=draw)]
    mask = torch.ones_like(ids)
    lengths = [tokens, tokens - tokens // 3][:rows]
    for row, length in enumerate(lengths):
        if ends[0] is not None:
            ids[row, length - 1] = ends[0]
        if length < tokens:
            ids[row, length:], mask[row, length:] = cast("int", config.pad_token_id), 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs | ({"decoder_input_ids": ids.clone()} if family.decoder_layers(model) is not None else {})


def compute_own_reference(model: PreTrainedModel, family: Family) -> Reference:
    """What this very model answers: for a model that was trained after the cut."""
    inputs = example_inputs(model, family)
    stacks = [(blocks, list(range(1, len(blocks) + 1))) for blocks in _stacks(model, family)]
    found = run_model(model, family, inputs)
    return Reference("the model in memory", inputs, found, _settings(stacks), _tolerance(model, True))


def compute_layer_reference(
    model: PreTrainedModel, family: Family, kept: Sequence[int], decoder: Sequence[int] | None = None
) -> Reference:
    """What the parent answers when only these layers act, in this order. The parent stays whole."""
    inputs = example_inputs(model, family)
    chosen = [kept, decoder or ()]
    stacks = [
        (blocks, list(wanted or range(1, len(blocks) + 1)))
        for blocks, wanted in zip(_stacks(model, family), chosen, strict=False)
    ]
    whole = all(wanted == list(range(1, len(blocks) + 1)) for blocks, wanted in stacks)
    if all(wanted == sorted(set(wanted)) for _, wanted in stacks):
        route = "the parent with blocks bypassed"
        with ExitStack() as hooks:
            for blocks, wanted in stacks:
                hooks.enter_context(_skipping(blocks, wanted))
            found = run_model(model, family, inputs)
    else:
        route = "the parent's blocks called by hand"
        found = _by_hand(model, family, inputs, stacks)
    return Reference(route, inputs, found, _settings(stacks), _tolerance(model, whole))


def compute_head_reference(
    model: PreTrainedModel, family: Family, kept: Sequence[int], heads: Mapping[int, Sequence[int]]
) -> Reference:
    """What the parent answers when only these layers act, and in them only these heads. The parent stays whole."""
    with heads_silenced(model, family, heads):
        wanted = compute_layer_reference(model, family, kept)
    settings = [{name: value for name, value in of.items() if not name.endswith(SIZES)} for of in wanted.settings]
    tolerance = max(wanted.tolerance, NARROW_TOLERANCE)
    return replace(wanted, route=f"{wanted.route} and heads silenced", settings=settings, tolerance=tolerance)


@contextmanager
def heads_silenced(model: PreTrainedModel, family: Family, heads: Mapping[int, Sequence[int]]) -> Iterator[None]:
    """In these layers, numbered from 1, only these heads add to what the attention gives."""

    def silence(projection: nn.Module, kept: Sequence[int]) -> Any:  # noqa: ANN401 - torch's handle
        dropped = [head not in kept for head in range(1, model.config.num_attention_heads + 1)]

        def hook(_module: nn.Module, args: tuple[Tensor]) -> Tensor:
            by_head = args[0].unflatten(-1, (len(dropped), -1))  # (batch, tokens, heads, width)
            silent = torch.tensor(dropped, device=by_head.device).unsqueeze(-1)
            return by_head.masked_fill(silent, 0).flatten(-2)

        return projection.register_forward_pre_hook(hook)

    blocks, path = family.layers(model), family.stack.attention_output
    with removing_hooks([silence(blocks[layer - 1].get_submodule(path), kept) for layer, kept in heads.items()]):
        yield


def _stacks(model: PreTrainedModel, family: Family) -> list[nn.ModuleList]:
    return [blocks for blocks in (family.layers(model), family.decoder_layers(model)) if blocks is not None]


def _settings(stacks: list[tuple[nn.ModuleList, list[int]]]) -> list[dict[str, str]]:
    return [child.read_settings(blocks[number - 1]) for blocks, kept in stacks for number in kept]


def _tolerance(model: PreTrainedModel, whole: bool) -> float:
    """Nothing was cut: to the bit. The fresh process computes on the CPU; a GPU rounds in another way."""
    return 1e-2 if model.device.type != "cpu" else 0.0 if whole else TOLERANCE


def run_model(model: PreTrainedModel, family: Family, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    there = {name: value.to(model.device) for name, value in inputs.items()}
    try:
        found = child.collect_outputs(model, there, find_stack_paths(model, family))
    except Exception as error:  # a class that cannot take plain tokens, or runs its blocks in a way of its own
        raise ProofFailed(f"{type(model).__name__} cannot be run on plain tokens: {first_line(error)}") from error
    return {name: value.cpu() for name, value in found.items()}


@contextmanager
def _skipping(blocks: nn.ModuleList, kept: Sequence[int]) -> Iterator[None]:
    """Dropped blocks hand on what they were given."""

    def skip(_module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:  # noqa: ANN401
        state = input_state((args, kwargs))
        return (state, *output[1:]) if isinstance(output, tuple) else state

    dropped = [block for number, block in enumerate(blocks, 1) if number not in kept]
    with removing_hooks([block.register_forward_hook(skip, with_kwargs=True) for block in dropped]):
        yield


def _by_hand(
    model: PreTrainedModel, family: Family, inputs: dict[str, Tensor], stacks: list[tuple[nn.ModuleList, list[int]]]
) -> dict[str, Tensor]:
    """Call blocks in any order: each with the arguments it has in the parent, and the state that has come so far."""
    with ExitStack() as replaced:
        for blocks, kept in stacks:
            wiring = record_calls(list(blocks), lambda: run_model(model, family, inputs))
            state = wiring.embedded
            with torch.inference_mode(), child.computing_in_float32(model, find_stack_paths(model, family)):
                for layer in kept:
                    state = wiring.run_block(layer, state)
            replaced.callback(_replace_output(blocks[-1], state).remove)
        return run_model(model, family, inputs)


def _replace_output(block: nn.Module, state: Tensor) -> Any:  # noqa: ANN401 - torch's handle
    return block.register_forward_hook(
        lambda _m, _a, output: (state, *output[1:]) if isinstance(output, tuple) else state
    )
