"""Check without its weights that an architecture can be cut: cut a tiny twin in many ways and prove every cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.config import Head
from probescale.errors import ProbeScaleError, ProofFailed, first_line
from probescale.models.counting import count_parameters
from probescale.models.family import Family
from probescale.models.heads import HEADS
from probescale.models.loading import LoadedModel, load_as_saved, quiet_transformers
from probescale.models.proof.comparison import Proof, ProofJob, prepare_proof, prove_folders
from probescale.models.proof.reference import compute_layer_reference, find_stack_paths
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.saving import write_model
from probescale.models.surgery import keep_layers

CUTS = {
    "all": (1, 2, 3, 4),
    "first": (1, 2),
    "gaps": (1, 3),
    "last": (3, 4),
    "reordered": (3, 1),
    "repeated": (1, 2, 2),
}
DECODER_CUTS = {"all": (1, 2, 3, 4), "gaps": (2, 4), "reordered": (4, 1)}  # where the model has a decoder
CUTS_WITH_LAYER_1 = {"last": (1, 4), "reordered": (1, 3, 2)}
STORED_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}  # other parents: float32, or "sharded"


@dataclass(frozen=True)
class RehearsedCut:
    """The outcome of one cut of a twin."""

    head: Head
    model_class: str
    cut: str  # a name in CUTS; and how the parent is stored, if not as one float32 file
    outcome: Proof | ProbeScaleError

    @property
    def passed(self) -> bool:
        return isinstance(self.outcome, Proof)


def rehearse(models: Sequence[tuple[PreTrainedConfig, Family]]) -> list[list[RehearsedCut]]:
    """The cuts of each model: every head that transformers has for it, cut in many ways, proved in one process."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared = [list(_prepare(config, family, Path(scratch) / str(n))) for n, (config, family) in enumerate(models)]
        jobs = [cut.job for cuts in prepared for cut in cuts if isinstance(cut.job, ProofJob)]
        proofs = iter(prove_folders(jobs) if jobs else ())
        return [[_rehearsed(cut, proofs) for cut in cuts] for cuts in prepared]


class _PreparedCut(NamedTuple):
    head: Head
    model_class: str
    cut: str
    job: ProofJob | ProbeScaleError  # an error where the twin cannot be built or cut


def _rehearsed(cut: _PreparedCut, proofs: Iterator[Proof | ProofFailed]) -> RehearsedCut:
    """The prepared cut with its outcome; takes the next proof, if there is a job for one."""
    outcome = next(proofs) if isinstance(cut.job, ProofJob) else cut.job
    return RehearsedCut(cut.head, cut.model_class, cut.cut, outcome)


def _prepare(config: PreTrainedConfig, family: Family, scratch: Path) -> Iterator[_PreparedCut]:
    """Every cut of a model's twin, saved and ready to be proved."""
    cuts = CUTS | (CUTS_WITH_LAYER_1 if family.layer_1_stays(config) else {})
    for head in HEADS:
        try:
            model = build_twin(config, family, head)
        except Exception as error:  # a class that does not accept these small sizes: reported, not hidden
            failure = ProofFailed(f"no tiny model of this architecture can be built: {first_line(error)}")
            yield _PreparedCut(head, "", "any", failure)
            continue
        if model is None:
            continue
        for stored in ("", *STORED_DTYPES, "sharded") if head == "none" else ("",):
            parent = _save_and_load(model, stored, scratch / f"{head}-{stored}")
            for cut in ["gaps"] if stored else ["all", "gaps"] if head not in ("none", "lm") else cuts:
                label = f"{cut}, {stored}" if stored else cut
                folder = scratch / f"{head}-{stored}-{cut}"
                job: ProofJob | ProbeScaleError
                if isinstance(parent, LoadedModel):
                    job = _try_cut(parent, cuts[cut], DECODER_CUTS.get(cut), folder)
                else:
                    job = parent
                yield _PreparedCut(head, type(model).__name__, label, job)


def _save_and_load(model: PreTrainedModel, stored: str, folder: Path) -> LoadedModel | ProbeScaleError:
    """The model, written to disk and loaded again as a user's model would be."""
    with quiet_transformers():
        options: dict[str, Any] = {"max_shard_size": "10KB"} if stored == "sharded" else {}
        saved = model.to(STORED_DTYPES[stored]) if stored in STORED_DTYPES else model.float()  # type: ignore[arg-type]
        saved.save_pretrained(folder, **options)
        build_twin_tokenizer().save_pretrained(folder)
    try:
        return load_as_saved(str(folder), dtype="auto")
    except ProbeScaleError as error:
        return error


def _try_cut(
    parent: LoadedModel, kept: tuple[int, ...], decoder: tuple[int, ...] | None, out: Path
) -> ProofJob | ProbeScaleError:
    try:
        return _cut(parent, kept, decoder, out)
    except ProbeScaleError as error:
        return error
    except Exception as error:  # whatever an unknown class raises: reported, not hidden
        return ProofFailed(f"{type(error).__name__}: {first_line(error)}")


def _cut(parent: LoadedModel, kept: tuple[int, ...], decoder: tuple[int, ...] | None, out: Path) -> ProofJob:
    """Cut the parent and save the result; refused where the cut changes no output, as it would prove nothing."""
    decoder = decoder if parent.family.decoder_layers(parent.model) is not None else None
    reference = compute_layer_reference(parent.model, parent.family, kept, decoder)
    full = compute_layer_reference(parent.model, parent.family, tuple(range(1, parent.layers + 1)))
    last_stack = find_stack_paths(parent.model, parent.family)[-1]
    if reference.tolerance and torch.equal(reference.outputs[last_stack], full.outputs[last_stack]):
        raise ProofFailed("the cut changes no output, so it would prove nothing")
    child = keep_layers(parent, kept, decoder, share=True)
    parameters = count_parameters(parent.model, parent.family).of(kept, decoder)
    write_model(child, out)
    return prepare_proof(child, reference, parameters, out)
