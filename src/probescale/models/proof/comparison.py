"""Prove a cut: stock transformers loads the saved folder in a fresh process, and its outputs equal those of the parent
with the dropped layers skipped (`reference.py`)."""

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

from probescale.errors import UNSUPPORTED_HINT, ProofFailed
from probescale.models.family import Family
from probescale.models.loading import LoadedModel
from probescale.models.proof import child
from probescale.models.proof.reference import Reference, find_stack_paths, run_model
from probescale.models.tokenizers import reset_tokenizer
from probescale.utils.files import Record
from probescale.utils.progress import spinner
from probescale.utils.resources import find_shortage, report_shortage

CACHE_TOLERANCE = 1e-3  # one token at a time adds in another order
# Runs a program file without garbage collection, which would take a second while libraries are imported.
LAUNCHER = "import gc, sys; gc.disable(); exec(compile(open(sys.argv.pop(1)).read(), 'child.py', 'exec'))"
SAMPLE_TEXT = "The 3 naïve foxes' plan, (un)like others: jump!"


class Proof(Record):
    """What was checked of a saved model. Recorded in its probescale.json."""

    route: str  # how the reference outputs were computed
    compared: tuple[str, ...]  # names of the outputs
    largest_difference: float  # relative to the largest absolute value of that output
    to_the_bit: bool
    cache_difference: float | None = None  # generation with and without the cache; None: the model does not generate
    params_on_disk: int


def compare_in_memory(model: PreTrainedModel, family: Family, reference: Reference) -> float:
    """The largest relative difference between a cut model, not yet saved or trained, and its reference."""
    return _compare(run_model(model, family, reference.inputs), reference)


@dataclass(frozen=True)
class ProofJob:
    """A saved folder to load in a fresh process, and everything it is compared with."""

    folder: Path
    model_class: str
    options: dict[str, Any]
    stacks: list[str]
    generates: bool
    reference: Reference
    parameters: int  # as counted before the cut
    sample_ids: list[int] | None  # token ids of SAMPLE_TEXT; None: it has no tokenizer


def prepare_proof(loaded: LoadedModel, reference: Reference, parameters: int, folder: Path) -> ProofJob:
    """The job that proves the folder of this model. The model itself is no longer needed then."""
    model, family, tokenizer = loaded.model, loaded.family, loaded.own_tokenizer
    generates = model.can_generate() and (family.pooling == "last" or family.decoder is not None)
    return ProofJob(
        folder=folder,
        model_class=type(model).__name__,
        options=load_options(model),
        stacks=find_stack_paths(model, family),
        generates=generates,
        reference=reference,
        parameters=parameters,
        sample_ids=reset_tokenizer(tokenizer)(SAMPLE_TEXT)["input_ids"] if tokenizer else None,
    )


def load_options(model: PreTrainedModel) -> dict[str, Any]:
    """Options for from_pretrained, so that it does not add a pooler with random weights."""
    return {"add_pooling_layer": False} if getattr(model, "pooler", "not a class with a pooler") is None else {}


def prove_folder(job: ProofJob) -> Proof:
    """Load a saved folder in a fresh process and compare it with its reference; raises ProofFailed."""
    with spinner("proving the cut in a fresh process"):
        result = prove_folders([job])[0]
    if isinstance(result, ProofFailed):
        raise result
    return result


def prove_folders(jobs: Sequence[ProofJob]) -> list[Proof | ProofFailed]:
    """A proof or failure for every folder, from one fresh process: most of its time goes into starting."""
    with tempfile.TemporaryDirectory() as scratch, report_shortage(Path(scratch)):
        outs = [Path(scratch) / str(number) for number in range(len(jobs))]
        described = [_write_job(job, out) for job, out in zip(jobs, outs, strict=True)]
        (Path(scratch) / "jobs.json").write_text(json.dumps(described), encoding="utf-8")
        done = run_child(scratch)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            hint = "it was killed; is there enough memory?" if done.returncode < 0 else UNSUPPORTED_HINT
            raise ProofFailed(f"the fresh process that loads the saved model died: {reason}", hint=hint)
        return [_prove_or_fail(job, out) for job, out in zip(jobs, outs, strict=True)]


def run_child(scratch: str) -> subprocess.CompletedProcess[str]:
    """Run child.py on jobs.json in this folder, which holds nothing that could be imported by mistake."""
    command = [sys.executable, "-c", LAUNCHER, child.__file__, "jobs.json"]
    return subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False)


def _write_job(job: ProofJob, out: Path) -> dict[str, Any]:
    """Write the inputs of a job; returns its description for child.py."""
    save_file(job.reference.inputs, f"{out}.inputs")
    return {
        "folder": str(job.folder),
        "class": job.model_class,
        "options": job.options,
        "stacks": job.stacks,
        "inputs": f"{out}.inputs",
        "out": str(out),
        "generate": job.generates,
        "text": None if job.sample_ids is None else SAMPLE_TEXT,
        "threads": torch.get_num_threads(),
    }


def _prove_or_fail(job: ProofJob, out: Path) -> Proof | ProofFailed:
    try:
        return _prove(job, out)
    except ProofFailed as failure:
        return failure


def _prove(job: ProofJob, out: Path) -> Proof:
    """Compare everything that the child process wrote for a job."""
    facts = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    if "error" in facts:
        if shortage := find_shortage(OSError(facts["error"]), out.parent):  # the child writes there
            raise shortage
        raise ProofFailed(f"the saved model does not load or run in a fresh process: {facts['error']}")
    for fault, names in facts["faults"].items():
        if names:
            raise ProofFailed(f"loading the saved model reports {fault.replace('_', ' ')}, such as {names[0]}")
    on_disk = parameters_on_disk(job.folder, facts["buffers"])
    expected = facts["parameters"] - facts["never_saved"]
    if expected != on_disk:
        raise ProofFailed(f"{on_disk:,} parameters are on disk, but {expected:,} are loaded from there")
    if facts.get("tokens") != job.sample_ids:
        raise ProofFailed("the saved tokenizer splits a sample text differently from the parent's tokenizer")
    if facts["parameters"] != job.parameters:
        raise ProofFailed(
            f"{job.parameters:,} parameters were counted before the cut, {facts['parameters']:,} after it"
        )
    if (cache_difference := facts.get("cache")) is not None and not cache_difference <= CACHE_TOLERANCE:
        raise ProofFailed(f"generation with and without the cache differs by {cache_difference:.1e}")
    _compare_settings([block for blocks in facts["settings"].values() for block in blocks], job.reference.settings)
    outputs = load_file(out.with_suffix(".safetensors"))
    difference = _compare(outputs, job.reference)
    return Proof(
        route=job.reference.route,
        compared=tuple(sorted(outputs)),
        largest_difference=difference,
        to_the_bit=difference == 0,
        cache_difference=cache_difference,
        params_on_disk=on_disk,
    )


def parameters_on_disk(folder: Path, buffers: Collection[str] = ()) -> int:
    """Parameters in the folder's weight files, without buffers; a tensor that is used twice is stored once."""
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys() if name not in buffers]  # noqa: SIM118
        count += sum(torch.Size(shape).numel() for shape in shapes)
    return count


def _compare(outputs: dict[str, Tensor], reference: Reference) -> float:
    """The largest difference over all outputs, each relative to its largest absolute value."""
    if set(outputs) != set(reference.outputs):
        raise ProofFailed(f"the cut model returns {sorted(outputs)}, the parent {sorted(reference.outputs)}")
    largest = 0.0
    for name, expected in reference.outputs.items():
        if not torch.isfinite(expected).all():
            raise ProofFailed(f"the parent's own {name} are not finite numbers; nothing can be compared")
        scale = expected.abs().max().clamp(min=1e-6)
        difference = ((outputs[name] - expected).abs().max() / scale).item()
        largest = max(largest, difference)
        if not difference <= reference.tolerance:
            raise ProofFailed(f"{name} differ by {difference:.1e} of their largest value from {reference.route}")
    return largest


def _compare_settings(saved: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    if len(saved) != len(expected):
        raise ProofFailed(f"the saved model has {len(saved)} layers instead of {len(expected)}")
    for number, (here, there) in enumerate(zip(saved, expected, strict=True), 1):
        for name in sorted(here.keys() & there.keys()):  # in some models the first block has parts of its own
            if here[name] != there[name] and "has_relative_attention_bias" not in name:
                raise ProofFailed(f"layer {number} of the saved model has {name} {here[name]} instead of {there[name]}")
