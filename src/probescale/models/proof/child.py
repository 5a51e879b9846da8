"""Run as a program: load saved models with stock transformers in a process of its own, and write down what they answer.

Nothing of this package is imported here: what this program sees is what a user sees. The functions also give the
parent's side of the proof (`proof.py`), so that both sides compute alike.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

NEW_TOKENS = 6
ALIGNED = 64  # bytes: where tensors begin that torch makes itself
NUMBERS = ("layer_idx", "layer_id", "layer_number", "training", "gradient_checkpointing")


def main(job_file: str) -> None:
    """Each job: folder, class, options, stacks, inputs, out. Writes out.json; and out.safetensors if all went well."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for job in json.loads(Path(job_file).read_text(encoding="utf-8")):
        try:
            facts = answer(job)
        except Exception as error:  # whatever the model's class says of the folder: it is reported, not hidden
            facts = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        Path(f"{job['out']}.json").write_text(json.dumps(facts), encoding="utf-8")


def answer(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])  # sums are split alike
    cls = getattr(transformers, job["class"])
    model, info = cls.from_pretrained(
        job["folder"], dtype="auto", local_files_only=True, output_loading_info=True, **job["options"]
    )
    faults = {name: sorted(map(str, info[name])) for name in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    inputs = load_file(job["inputs"])
    found = collect_outputs(model.eval(), inputs, job["stacks"])
    facts = {"faults": faults, "parameters": sum(p.numel() for p in model.parameters())}
    facts["buffers"] = sorted(name for name, _ in model.named_buffers())
    facts["settings"] = {path: [read_settings(block) for block in model.get_submodule(path)] for path in job["stacks"]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        job["folder"], local_files_only=True, trust_remote_code=False
    )
    facts["tokens"] = tokenizer(job["text"])["input_ids"]
    if job["generate"]:
        facts["cache"] = measure_cache_difference(model, inputs, job["stacks"])
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, f"{job['out']}.safetensors")
    return facts


def collect_outputs(model: Any, inputs: dict[str, Tensor], stacks: list[str]) -> dict[str, Tensor]:  # noqa: ANN401 - any model
    """Everything a model answers as numbers, and the states that come out of each stack of layers."""
    found: dict[str, Tensor] = {}

    def keep(path: str) -> Any:  # noqa: ANN401 - a hook
        return lambda _m, _a, output: found.update({path: output[0] if isinstance(output, tuple) else output})

    handles = [model.get_submodule(path)[-1].register_forward_hook(keep(path)) for path in stacks]
    try:
        with torch.inference_mode(), computing_in_float32(model, stacks):
            answered = model(**inputs, **without_cache(model), return_dict=True)
    finally:
        for handle in handles:
            handle.remove()
    found |= {name: value for name, value in answered.items() if isinstance(value, Tensor)}
    return {name: value.clone() for name, value in found.items() if value.is_floating_point()}


def read_settings(block: nn.Module) -> dict[str, str]:
    """What a block was built with: windows, kinds of attention, scales. Not its number, which a cut changes."""
    return {
        f"{path}.{name}": repr(value)
        for path, module in block.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (str, int, float, bool, type(None))) and name not in NUMBERS and not name.startswith("_")
    }


def measure_cache_difference(model: Any, inputs: dict[str, Tensor], stacks: list[str]) -> float:  # noqa: ANN401
    """Generate with the cache; the largest difference from one pass over the same tokens without it, relative."""
    first = {name: value[:1] for name, value in inputs.items() if name != "decoder_input_ids"}
    with torch.inference_mode(), computing_in_float32(model, stacks):
        made = model.generate(
            **first, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1, use_cache=True,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        stepwise = torch.stack(made.logits, 1)  # (1, new tokens, vocabulary)
        if model.config.is_encoder_decoder:
            whole = model(**first, decoder_input_ids=made.sequences, use_cache=False).logits
        else:
            whole = model(input_ids=made.sequences, use_cache=False).logits
        wanted = whole[:, -stepwise.shape[1] - 1 : -1]
    return ((stepwise - wanted).abs().max() / wanted.abs().max()).item()


def without_cache(model: Any) -> dict[str, bool]:  # noqa: ANN401
    """A cache would remember calls of single blocks."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


@contextmanager
def computing_in_float32(model: nn.Module, stacks: list[str]) -> Iterator[None]:
    """Lend the model float32 weights, one block at a time: half precision is slow or missing on CPUs.

    Each block has float32 weights only while it runs, so that memory is the model's own and that of one block.
    """
    lists = [module for path, module in model.named_modules() if path in stacks]
    blocks = [block for stack in lists for block in stack.children()]
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    outside = _lend(p for p in model.parameters() if id(p) not in inside)
    lent: dict[nn.Module, list[tuple[nn.Parameter, Tensor]]] = {}

    def before(block: nn.Module, _args: object) -> None:
        lent[block] = _lend(block.parameters())

    def after(block: nn.Module, _args: object, _output: object) -> None:
        _give_back(lent.pop(block))

    handles = [block.register_forward_pre_hook(before, prepend=True) for block in blocks]
    handles += [block.register_forward_hook(after) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for changed in (outside, *lent.values()):
            _give_back(changed)


def _lend(parameters: Any) -> list[tuple[nn.Parameter, Tensor]]:  # noqa: ANN401 - an iterable of parameters
    own = [(parameter, parameter.data) for parameter in parameters if _is_half(parameter) or _is_crooked(parameter)]
    for parameter, data in own:
        parameter.data = data.to(torch.float32, copy=True)
    return own


def _is_half(weight: Tensor) -> bool:
    return weight.dtype in (torch.float16, torch.bfloat16)


def _is_crooked(weight: Tensor) -> bool:
    """Read from a file behind a bias of odd size, a weight begins between two vectors of the processor, which then adds
    up in another order: the last bit of an answer would depend on it."""
    return weight.dtype == torch.float32 and weight.data_ptr() % ALIGNED != 0


def _give_back(own: list[tuple[nn.Parameter, Tensor]]) -> None:
    for parameter, data in own:
        parameter.data = data


if __name__ == "__main__":
    main(sys.argv[1])
