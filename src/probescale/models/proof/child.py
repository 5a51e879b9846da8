"""The child process of a proof: load saved models with stock transformers and write their outputs to files.

It imports nothing of this package, so it sees what a user sees. The parent process calls the same functions for its
side of the proof (`reference.py`), so both sides compute in the same way.
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
ALIGNMENT = 64  # bytes: torch allocates tensors at multiples of this
NOT_SETTINGS = ("layer_idx", "layer_id", "layer_number", "training", "gradient_checkpointing")


def main(job_file: str) -> None:
    """Run every job of a JSON list; each writes OUT.json, and OUT.safetensors if the model could be run."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for job in json.loads(Path(job_file).read_text(encoding="utf-8")):
        try:
            facts = run_job(job)
        except Exception as error:  # whatever the model's class raises: it is reported, not hidden
            facts = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        Path(f"{job['out']}.json").write_text(json.dumps(facts), encoding="utf-8")


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Load one saved model, save its outputs, and return what else the proof compares."""
    torch.set_num_threads(job["threads"])  # as in the parent, so that sums are split in the same way
    cls = getattr(transformers, job["class"])
    model, info = cls.from_pretrained(
        job["folder"], dtype="auto", local_files_only=True, output_loading_info=True, **job["options"]
    )
    faults = {name: sorted(map(str, info[name])) for name in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    inputs = load_file(job["inputs"])
    outputs = collect_outputs(model.eval(), inputs, job["stacks"])
    facts = {"faults": faults, "parameters": sum(p.numel() for p in model.parameters())}
    facts["never_saved"] = count_never_saved(model)
    facts["buffers"] = sorted(name for name, _ in model.named_buffers())
    facts["settings"] = {path: [read_settings(block) for block in model.get_submodule(path)] for path in job["stacks"]}
    if job["text"] is not None:  # else the model has no tokenizer
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            job["folder"], local_files_only=True, trust_remote_code=False
        )
        facts["tokens"] = tokenizer(job["text"])["input_ids"]
    if job["generate"]:
        facts["cache"] = measure_cache_difference(model, inputs, job["stacks"])
    save_file({name: tensor.contiguous() for name, tensor in outputs.items()}, f"{job['out']}.safetensors")
    return facts


def count_never_saved(model: Any) -> int:  # noqa: ANN401 - any model
    """Parameters that the class computes instead of saving them, such as the sinusoids of Marian's positions."""
    names = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    return sum(parameter.numel() for name, parameter in model.named_parameters() if name in names)


def collect_outputs(model: Any, inputs: dict[str, Tensor], stacks: list[str]) -> dict[str, Tensor]:  # noqa: ANN401 - any model
    """All floating-point outputs of a model, and the hidden states behind each stack of layers."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str) -> Any:  # noqa: ANN401 - a hook
        return lambda _m, _a, output: outputs.update({path: output[0] if isinstance(output, tuple) else output})

    handles = [model.get_submodule(path)[-1].register_forward_hook(keep(path)) for path in stacks]
    try:
        with torch.inference_mode(), computing_in_float32(model, stacks):
            result = model(**inputs, **without_cache(model), return_dict=True)
    finally:
        for handle in handles:
            handle.remove()
    outputs |= {name: value for name, value in result.items() if isinstance(value, Tensor)}
    return {name: value.clone() for name, value in outputs.items() if value.is_floating_point()}


def read_settings(block: nn.Module) -> dict[str, str]:
    """The settings a block was built with (attention type, window, scale), without its number, which a cut changes."""
    return {
        f"{path}.{name}": repr(value)
        for path, module in block.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (str, int, float, bool, type(None)))
        and name not in NOT_SETTINGS
        and not name.startswith("_")
    }


def measure_cache_difference(model: Any, inputs: dict[str, Tensor], stacks: list[str]) -> float:  # noqa: ANN401
    """The largest relative difference between generation with the cache and one pass without it."""
    first = {name: value[:1] for name, value in inputs.items() if name != "decoder_input_ids"}
    with torch.inference_mode(), computing_in_float32(model, stacks):
        generated = model.generate(
            **first, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1, use_cache=True,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        stepwise = torch.stack(generated.logits, 1)  # (1, new tokens, vocabulary)
        if model.config.is_encoder_decoder:
            full = model(**first, decoder_input_ids=generated.sequences, use_cache=False).logits
        else:
            full = model(input_ids=generated.sequences, use_cache=False).logits
        expected = full[:, -stepwise.shape[1] - 1 : -1]
    return ((stepwise - expected).abs().max() / expected.abs().max()).item()


def without_cache(model: Any) -> dict[str, bool]:  # noqa: ANN401
    """The option that turns the cache off, for models that have one: it would keep the calls of single blocks."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


@contextmanager
def computing_in_float32(model: nn.Module, stacks: list[str]) -> Iterator[None]:
    """Compute with float32 copies of the weights inside this context: half precision is slow or missing on CPUs.

    Each block has its copies only while it runs, so memory grows by one block.
    """
    lists = [module for path, module in model.named_modules() if path in stacks]
    blocks = [block for stack in lists for block in stack.children()]
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    outside = _swap_in(p for p in model.parameters() if id(p) not in inside)
    swapped: dict[nn.Module, list[tuple[nn.Parameter, Tensor]]] = {}

    def before(block: nn.Module, _args: object) -> None:
        swapped[block] = _swap_in(block.parameters())

    def after(block: nn.Module, _args: object, _output: object) -> None:
        _restore(swapped.pop(block))

    handles = [block.register_forward_pre_hook(before, prepend=True) for block in blocks]
    handles += [block.register_forward_hook(after) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for changed in (outside, *swapped.values()):
            _restore(changed)


def _swap_in(parameters: Any) -> list[tuple[nn.Parameter, Tensor]]:  # noqa: ANN401 - an iterable of parameters
    """Give parameters float32 copies where needed; returns the originals, for `_restore`."""
    originals = [(p, p.data) for p in parameters if _is_half(p) or _is_misaligned(p)]
    for parameter, data in originals:
        parameter.data = data.to(torch.float32, copy=True)
    return originals


def _is_half(weight: Tensor) -> bool:
    return weight.dtype in (torch.float16, torch.bfloat16)


def _is_misaligned(weight: Tensor) -> bool:
    """Whether a weight starts off the alignment, as one can that is memory-mapped behind an odd-sized bias.

    Vector instructions would then add in another order, and the last bit of the outputs would depend on it.
    """
    return weight.dtype == torch.float32 and weight.data_ptr() % ALIGNMENT != 0


def _restore(originals: list[tuple[nn.Parameter, Tensor]]) -> None:
    for parameter, data in originals:
        parameter.data = data


if __name__ == "__main__":
    main(sys.argv[1])
