"""Proof of a cut: the saved folder, loaded by stock transformers in a fresh process, answers as the parent does when
the other layers are skipped. What the parent answers is found without cutting anything."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from probescale.errors import UserError, first_line
from probescale.files import Record
from probescale.models import fresh
from probescale.models.family import Family, backbone_prefix
from probescale.models.loading import LoadedModel
from probescale.models.tokenizers import as_new

TOLERANCE = 1e-5  # of the largest number: the same operations on the same weights
CACHE_TOLERANCE = 1e-3  # one token at a time adds up in another order
TOKENS = 12
TEXT = "The 3 naïve foxes' plan, (un)like others: jump!"


NOT_UNDERSTOOD = "nothing was written; this model's build is not understood yet"


class ProofFailed(UserError):  # noqa: N818 - what happened
    """A cut that does not answer as it should. Nothing is written."""

    def __init__(self, message: str, *, hint: str = NOT_UNDERSTOOD) -> None:
        super().__init__(message, field="proof", hint=hint)


class Proof(Record):
    """What was checked of a saved model. Recorded in its probescale.json."""

    route: str  # how the parent's answer was found
    compared: tuple[str, ...]  # which outputs
    largest_difference: float  # relative to the largest number of that output
    to_the_bit: bool
    cache_difference: float | None = None  # generation with the cache against one pass without; None: no generation
    params_on_disk: int


@dataclass(frozen=True)
class Wanted:
    """Inputs, and what the saved model has to answer to them."""

    route: str
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    settings: list[dict[str, str]]  # of every layer, stack by stack: short inputs do not show a wrong window
    tolerance: float = TOLERANCE  # relative to the largest number of an output; 0: every bit is the same


def stack_paths(model: PreTrainedModel, family: Family) -> list[str]:
    """Full paths of the stacks that this class has."""
    stacks = [stack for stack in (family.stack, family.decoder) if stack is not None and stack.of(model) is not None]
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


def answers(model: PreTrainedModel, family: Family) -> Wanted:
    """What this very model answers: for a model that was trained after the cut."""
    inputs = example_inputs(model, family)
    stacks = [(blocks, list(range(1, len(blocks) + 1))) for blocks in _stacks(model, family)]
    found = _outputs(model, family, inputs)
    return Wanted("the model in memory", inputs, found, _settings(stacks), _tolerance(model, True))


def parents_answers(
    model: PreTrainedModel, family: Family, kept: Sequence[int], decoder: Sequence[int] | None = None
) -> Wanted:
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
            found = _outputs(model, family, inputs)
    else:
        route = "the parent's blocks called by hand"
        found = _by_hand(model, family, inputs, stacks)
    return Wanted(route, inputs, found, _settings(stacks), _tolerance(model, whole))


def _stacks(model: PreTrainedModel, family: Family) -> list[nn.ModuleList]:
    return [blocks for blocks in (family.layers(model), family.decoder_layers(model)) if blocks is not None]


def _settings(stacks: list[tuple[nn.ModuleList, list[int]]]) -> list[dict[str, str]]:
    return [fresh.settings_of(blocks[number - 1]) for blocks, kept in stacks for number in kept]


def _tolerance(model: PreTrainedModel, whole: bool) -> float:
    """Nothing was cut: to the bit. The fresh process computes on the CPU; a GPU rounds in another way."""
    return 1e-2 if model.device.type != "cpu" else 0.0 if whole else TOLERANCE


def check_in_memory(model: PreTrainedModel, family: Family, wanted: Wanted) -> float:
    """The cut before it is saved or trained."""
    return _compare(_outputs(model, family, wanted.inputs), wanted)


@dataclass(frozen=True)
class FolderCheck:
    """A folder to load in a fresh process, and what is known of it."""

    folder: Path
    model_class: str
    options: dict[str, Any]
    stacks: list[str]
    generates: bool
    wanted: Wanted
    predicted: int  # parameters
    tokens: list[int]  # of TEXT


def folder_check(loaded: LoadedModel, wanted: Wanted, predicted: int, folder: Path) -> FolderCheck:
    """How the folder of this model is checked; the model itself is not needed any more."""
    model, family = loaded.model, loaded.family
    generates = model.can_generate() and (family.pooling == "last" or family.decoder is not None)
    name, stacks = type(model).__name__, stack_paths(model, family)
    tokens = as_new(loaded.tokenizer)(TEXT)["input_ids"]
    return FolderCheck(folder, name, load_options(model), stacks, generates, wanted, predicted, tokens)


def load_options(model: PreTrainedModel) -> dict[str, Any]:
    """What from_pretrained needs to be told so that it invents no pooler."""
    return {"add_pooling_layer": False} if getattr(model, "pooler", "not a class with a pooler") is None else {}


def check_folder(check: FolderCheck) -> Proof:
    """Load a saved folder in a fresh process and compare."""
    found = check_folders([check])[0]
    if isinstance(found, ProofFailed):
        raise found
    return found


def check_folders(checks: Sequence[FolderCheck]) -> list[Proof | ProofFailed]:
    """One fresh process for several saved folders: most of its time goes into starting."""
    with tempfile.TemporaryDirectory() as scratch:
        outs = [Path(scratch) / str(number) for number in range(len(checks))]
        jobs = [_job(check, out) for check, out in zip(checks, outs, strict=True)]
        (Path(scratch) / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        # As text, from an empty folder: no file beside the program or the user can be imported by mistake.
        program = Path(fresh.__file__).read_text(encoding="utf-8")
        command = [sys.executable, "-c", program, "jobs.json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            hint = "it was killed; is there enough memory?" if done.returncode < 0 else NOT_UNDERSTOOD
            raise ProofFailed(f"the fresh process that loads the saved model died: {reason}", hint=hint)
        return [_judged(check, out) for check, out in zip(checks, outs, strict=True)]


def _job(check: FolderCheck, out: Path) -> dict[str, Any]:
    save_file(check.wanted.inputs, f"{out}.inputs")
    return {
        "folder": str(check.folder),
        "class": check.model_class,
        "options": check.options,
        "stacks": check.stacks,
        "inputs": f"{out}.inputs",
        "out": str(out),
        "generate": check.generates,
        "text": TEXT,
        "threads": torch.get_num_threads(),
    }


def _judged(check: FolderCheck, out: Path) -> Proof | ProofFailed:
    try:
        return _proof(check, out)
    except ProofFailed as failure:
        return failure


def _proof(check: FolderCheck, out: Path) -> Proof:
    facts = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    if "error" in facts:
        raise ProofFailed(f"the saved model does not load or run in a fresh process: {facts['error']}")
    for fault, names in facts["faults"].items():
        if names:
            raise ProofFailed(f"loading the saved model reports {fault.replace('_', ' ')}, such as {names[0]}")
    on_disk = parameters_on_disk(check.folder, facts["buffers"])
    if facts["parameters"] != on_disk:
        raise ProofFailed(f"{on_disk:,} parameters are on disk, but {facts['parameters']:,} are loaded from there")
    if facts["tokens"] != check.tokens:
        raise ProofFailed("the saved tokenizer does not read a text as the parent's does")
    if on_disk != check.predicted:
        raise ProofFailed(f"{check.predicted:,} parameters were predicted, {on_disk:,} are on disk")
    if (gap := facts.get("cache")) is not None and not gap <= CACHE_TOLERANCE:
        raise ProofFailed(f"generation with and without the cache differs by {gap:.1e}")
    _compare_settings([block for blocks in facts["settings"].values() for block in blocks], check.wanted.settings)
    found = load_file(out.with_suffix(".safetensors"))
    difference = _compare(found, check.wanted)
    return Proof(
        route=check.wanted.route,
        compared=tuple(sorted(found)),
        largest_difference=difference,
        to_the_bit=difference == 0,
        cache_difference=gap,
        params_on_disk=on_disk,
    )


def parameters_on_disk(folder: Path, buffers: Collection[str] = ()) -> int:
    """Numbers in the folder's weight files, without stored constants; a tensor that serves twice is stored once."""
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys() if name not in buffers]  # noqa: SIM118
        count += sum(torch.Size(shape).numel() for shape in shapes)
    return count


def _outputs(model: PreTrainedModel, family: Family, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    there = {name: value.to(model.device) for name, value in inputs.items()}
    try:
        found = fresh.outputs_of(model, there, stack_paths(model, family))
    except Exception as error:  # a class that cannot take plain tokens, or runs its blocks in a way of its own
        raise ProofFailed(f"{type(model).__name__} cannot be run on plain tokens: {first_line(error)}") from error
    return {name: value.cpu() for name, value in found.items()}


def _compare(found: dict[str, Tensor], wanted: Wanted) -> float:
    """The largest difference over all outputs, relative to each one's largest number."""
    if set(found) != set(wanted.outputs):
        raise ProofFailed(f"the cut answers {sorted(found)}, the parent {sorted(wanted.outputs)}")
    largest = 0.0
    for name, expected in wanted.outputs.items():
        if not torch.isfinite(expected).all():
            raise ProofFailed(f"the parent's own {name} are not finite numbers; nothing can be compared")
        scale = expected.abs().max().clamp(min=1e-6)
        gap = ((found[name] - expected).abs().max() / scale).item()
        largest = max(largest, gap)
        if not gap <= wanted.tolerance:
            raise ProofFailed(f"{name} differ by {gap:.1e} of their largest value from {wanted.route}")
    return largest


def _compare_settings(found: list[dict[str, str]], wanted: list[dict[str, str]]) -> None:
    if len(found) != len(wanted):
        raise ProofFailed(f"the saved model has {len(found)} layers instead of {len(wanted)}")
    for number, (here, there) in enumerate(zip(found, wanted, strict=True), 1):
        for name in sorted(here.keys() & there.keys()):  # the first block of some has parts of its own
            if here[name] != there[name] and "has_relative_attention_bias" not in name:
                raise ProofFailed(f"layer {number} of the saved model has {name} {here[name]} instead of {there[name]}")


@contextmanager
def _skipping(blocks: nn.ModuleList, kept: Sequence[int]) -> Iterator[None]:
    """Dropped blocks hand on what they were given."""

    def skip(_module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:  # noqa: ANN401
        given = _given((args, kwargs))
        return (given, *output[1:]) if isinstance(output, tuple) else given

    dropped = [block for number, block in enumerate(blocks, 1) if number not in kept]
    handles = [block.register_forward_hook(skip, with_kwargs=True) for block in dropped]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _by_hand(
    model: PreTrainedModel, family: Family, inputs: dict[str, Tensor], stacks: list[tuple[nn.ModuleList, list[int]]]
) -> dict[str, Tensor]:
    """Call blocks in any order: each with the arguments it has in the parent, and the state that has come so far."""
    with ExitStack() as replaced:
        for blocks, kept in stacks:
            calls: dict[nn.Module, tuple[tuple, dict[str, Any]]] = {}
            handles = [block.register_forward_pre_hook(lambda b, a, k, calls=calls: calls.update({b: (a, k)}),
                                                       with_kwargs=True) for block in blocks]  # fmt: skip
            _outputs(model, family, inputs)
            for handle in handles:
                handle.remove()
            state = _given(calls[blocks[0]])
            with torch.inference_mode(), fresh.computing_in_float32(model, stack_paths(model, family)):
                for number in kept:
                    args, kwargs = calls[blocks[number - 1]]
                    out = blocks[number - 1](state, *args[1:], **kwargs) if args else blocks[number - 1](
                        **kwargs | {"hidden_states": state})  # fmt: skip
                    state = out[0] if isinstance(out, tuple) else out
            replaced.callback(_replace_output(blocks[-1], state).remove)
        return _outputs(model, family, inputs)


def _given(call: tuple[tuple, dict[str, Any]]) -> Tensor:
    args, kwargs = call
    return args[0] if args else kwargs["hidden_states"]


def _replace_output(block: nn.Module, state: Tensor) -> Any:  # noqa: ANN401 - torch's handle
    return block.register_forward_hook(
        lambda _m, _a, output: (state, *output[1:]) if isinstance(output, tuple) else state
    )
