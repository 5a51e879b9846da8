"""Proof of a cut: the saved folder, loaded by stock transformers in a fresh process, answers as the parent does when
the other layers are skipped (parent.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from probescale.errors import NOT_UNDERSTOOD, ProofFailed
from probescale.models.family import Family
from probescale.models.loading import LoadedModel
from probescale.models.proof import child
from probescale.models.proof.reference import Reference, find_stack_paths, run_model
from probescale.models.tokenizers import reset_tokenizer
from probescale.utils.files import Record
from probescale.utils.progress import spinner

CACHE_TOLERANCE = 1e-3  # one token at a time adds up in another order
# Looking for garbage while libraries are imported would take a second.
LAUNCHER = "import gc, sys; gc.disable(); exec(compile(open(sys.argv.pop(1)).read(), 'child.py', 'exec'))"
TEXT = "The 3 naïve foxes' plan, (un)like others: jump!"


class Proof(Record):
    """What was checked of a saved model. Recorded in its probescale.json."""

    route: str  # how the parent's answer was found
    compared: tuple[str, ...]  # which outputs
    largest_difference: float  # relative to the largest number of that output
    to_the_bit: bool
    cache_difference: float | None = None  # generation with the cache against one pass without; None: no generation
    params_on_disk: int


def compare_in_memory(model: PreTrainedModel, family: Family, wanted: Reference) -> float:
    """The cut before it is saved or trained."""
    return _compare(run_model(model, family, wanted.inputs), wanted)


@dataclass(frozen=True)
class ProofJob:
    """A folder to load in a fresh process, and what is known of it."""

    folder: Path
    model_class: str
    options: dict[str, Any]
    stacks: list[str]
    generates: bool
    wanted: Reference
    predicted: int  # parameters
    tokens: list[int]  # of TEXT


def prepare_proof(loaded: LoadedModel, wanted: Reference, predicted: int, folder: Path) -> ProofJob:
    """How the folder of this model is checked; the model itself is not needed any more."""
    model, family = loaded.model, loaded.family
    generates = model.can_generate() and (family.pooling == "last" or family.decoder is not None)
    name, stacks = type(model).__name__, find_stack_paths(model, family)
    tokens = reset_tokenizer(loaded.tokenizer)(TEXT)["input_ids"]
    return ProofJob(folder, name, load_options(model), stacks, generates, wanted, predicted, tokens)


def load_options(model: PreTrainedModel) -> dict[str, Any]:
    """What from_pretrained needs to be told so that it invents no pooler."""
    return {"add_pooling_layer": False} if getattr(model, "pooler", "not a class with a pooler") is None else {}


def prove_folder(check: ProofJob) -> Proof:
    """Load a saved folder in a fresh process and compare."""
    with spinner("proving the cut in a fresh process"):
        found = prove_folders([check])[0]
    if isinstance(found, ProofFailed):
        raise found
    return found


def prove_folders(checks: Sequence[ProofJob]) -> list[Proof | ProofFailed]:
    """One fresh process for several saved folders: most of its time goes into starting."""
    with tempfile.TemporaryDirectory() as scratch:
        outs = [Path(scratch) / str(number) for number in range(len(checks))]
        jobs = [_job(check, out) for check, out in zip(checks, outs, strict=True)]
        (Path(scratch) / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        done = run_child(scratch)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            hint = "it was killed; is there enough memory?" if done.returncode < 0 else NOT_UNDERSTOOD
            raise ProofFailed(f"the fresh process that loads the saved model died: {reason}", hint=hint)
        return [_judged(check, out) for check, out in zip(checks, outs, strict=True)]


def run_child(scratch: str) -> subprocess.CompletedProcess[str]:
    """The program, with jobs.json of a folder that holds nothing else to import by mistake."""
    command = [sys.executable, "-c", LAUNCHER, child.__file__, "jobs.json"]
    return subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False)


def _job(check: ProofJob, out: Path) -> dict[str, Any]:
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


def _judged(check: ProofJob, out: Path) -> Proof | ProofFailed:
    try:
        return _proof(check, out)
    except ProofFailed as failure:
        return failure


def _proof(check: ProofJob, out: Path) -> Proof:
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


def _compare(found: dict[str, Tensor], wanted: Reference) -> float:
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
