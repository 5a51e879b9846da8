"""References for proofs: the outputs of a model with some layers skipped, computed without cutting anything."""

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
from probescale.models.fast_float32 import usual_float32
from probescale.models.proof import child

TOLERANCE = 1e-5  # relative to the largest value: the same operations on the same weights
NARROW_TOLERANCE = 1e-4  # where matrices have lost columns, and sums are added in another order
TOKENS = 12
# Settings of a block that are sizes; loading checks the sizes of weights.
SIZES = ("in_features", "out_features", "embedding_dim", "n_heads", "inner_dim", "num_key_value_groups")


@dataclass(frozen=True)
class Reference:
    """Inputs, and the outputs and settings that a saved model must have for them."""

    route: str  # how the outputs were computed, in words
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    settings: list[dict[str, str]]  # of every layer, stack by stack: short inputs would not show a wrong window
    tolerance: float = TOLERANCE  # relative to the largest value of an output; 0: equal to the bit


def find_stack_paths(model: PreTrainedModel, family: Family) -> list[str]:
    """Full paths of the stacks of layers that the model's class has."""
    stacks = [
        stack for stack in (family.stack, family.decoder) if stack is not None and stack.find_in(model) is not None
    ]
    return [f"{backbone_prefix(model)}{stack.blocks}" for stack in stacks]


def example_inputs(model: PreTrainedModel, family: Family) -> dict[str, Tensor]:
    """Random token ids, the same in every call; the second row is padded where the model has a padding token."""
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


@usual_float32()
def compute_own_reference(model: PreTrainedModel, family: Family) -> Reference:
    """The outputs of the model itself, for a model that was trained after the cut."""
    inputs = example_inputs(model, family)
    stacks = [(blocks, list(range(1, len(blocks) + 1))) for blocks in _stacks(model, family)]
    outputs = run_model(model, family, inputs)
    return Reference("the model in memory", inputs, outputs, _settings(stacks), _tolerance(model, complete=True))


@usual_float32()
def compute_layer_reference(
    model: PreTrainedModel, family: Family, kept: Sequence[int], decoder: Sequence[int] | None = None
) -> Reference:
    """The outputs of the model when only these layers run, in this order. The model is not changed."""
    inputs = example_inputs(model, family)
    stacks = [
        (blocks, list(layers or range(1, len(blocks) + 1)))
        for blocks, layers in zip(_stacks(model, family), [kept, decoder or ()], strict=False)
    ]
    complete = all(layers == list(range(1, len(blocks) + 1)) for blocks, layers in stacks)
    if all(layers == sorted(set(layers)) for _, layers in stacks):
        route = "the parent with blocks bypassed"
        with ExitStack() as hooks:
            for blocks, layers in stacks:
                hooks.enter_context(_others_bypassed(blocks, layers))
            outputs = run_model(model, family, inputs)
    else:
        route = "the parent's blocks called by hand"
        outputs = _run_in_order(model, family, inputs, stacks)
    return Reference(route, inputs, outputs, _settings(stacks), _tolerance(model, complete=complete))


def compute_head_reference(
    model: PreTrainedModel, family: Family, kept: Sequence[int], heads: Mapping[int, Sequence[int]]
) -> Reference:
    """The outputs of the model when only these layers run, and in them only these heads. The model is not changed."""
    with heads_silenced(model, family, heads):
        reference = compute_layer_reference(model, family, kept)
    settings = [{name: value for name, value in of.items() if not name.endswith(SIZES)} for of in reference.settings]
    tolerance = max(reference.tolerance, NARROW_TOLERANCE)
    return replace(reference, route=f"{reference.route} and heads silenced", settings=settings, tolerance=tolerance)


@contextmanager
def heads_silenced(model: PreTrainedModel, family: Family, heads: Mapping[int, Sequence[int]]) -> Iterator[None]:
    """Inside this context, only these heads contribute to the attention output: layer (from 1) -> heads (from 1)."""

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


def _tolerance(model: PreTrainedModel, *, complete: bool) -> float:
    """Zero where no layer is dropped. The fresh process computes on the CPU, and a GPU rounds differently."""
    return 1e-2 if model.device.type != "cpu" else 0.0 if complete else TOLERANCE


@usual_float32()
def run_model(model: PreTrainedModel, family: Family, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """All outputs of a model for these inputs, on the CPU."""
    on_device = {name: value.to(model.device) for name, value in inputs.items()}
    try:
        outputs = child.collect_outputs(model, on_device, find_stack_paths(model, family))
    except Exception as error:  # a class that needs more than token ids, or calls its blocks in an unusual way
        raise ProofFailed(f"{type(model).__name__} cannot be run on token ids alone: {first_line(error)}") from error
    return {name: value.cpu() for name, value in outputs.items()}


@contextmanager
def _others_bypassed(blocks: nn.ModuleList, kept: Sequence[int]) -> Iterator[None]:
    """Inside this context, every block that is not kept returns its input unchanged."""

    def skip(_module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:  # noqa: ANN401
        state = input_state((args, kwargs))
        return (state, *output[1:]) if isinstance(output, tuple) else state

    dropped = [block for number, block in enumerate(blocks, 1) if number not in kept]
    with removing_hooks([block.register_forward_hook(skip, with_kwargs=True) for block in dropped]):
        yield


def _run_in_order(
    model: PreTrainedModel, family: Family, inputs: dict[str, Tensor], stacks: list[tuple[nn.ModuleList, list[int]]]
) -> dict[str, Tensor]:
    """The outputs with blocks called in any order, each with its arguments in the full model and the current state."""
    with ExitStack() as replaced:
        for blocks, kept in stacks:
            calls = record_calls(list(blocks), lambda: run_model(model, family, inputs))
            state = calls.embedded
            with torch.inference_mode(), child.computing_in_float32(model, find_stack_paths(model, family)):
                for layer in kept:
                    state = calls.run_block(layer, state)
            replaced.callback(_replace_output(blocks[-1], state).remove)
        return run_model(model, family, inputs)


def _replace_output(block: nn.Module, state: Tensor) -> Any:  # noqa: ANN401 - torch's handle
    """Make a block return this state, until the handle is removed."""
    return block.register_forward_hook(
        lambda _m, _a, output: (state, *output[1:]) if isinstance(output, tuple) else state
    )
