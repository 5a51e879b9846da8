"""Try a model's build before its weights are there: cut a tiny twin in every way, and prove every cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from probescale.errors import ProbeScaleError, ProofFailed, first_line
from probescale.models.counting import count_parameters
from probescale.models.family import Family
from probescale.models.heads import HEADS, Head
from probescale.models.loading import LoadedModel, load_as_saved, quiet_transformers
from probescale.models.proof.comparison import Proof, ProofJob, prepare_proof, prove_folders
from probescale.models.proof.reference import compute_layer_reference, find_stack_paths
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.surgery import keep_layers, write_model

CUTS = {
    "all": (1, 2, 3, 4),
    "first": (1, 2),
    "gaps": (1, 3),
    "last": (3, 4),
    "reordered": (3, 1),
    "repeated": (1, 2, 2),
}
SECOND = {"all": (1, 2, 3, 4), "gaps": (2, 4), "reordered": (4, 1)}  # the decoder of an encoder-decoder
WHERE_LAYER_1_STAYS = {"last": (1, 4), "reordered": (1, 3, 2)}
STORED = {"float16": torch.float16, "bfloat16": torch.bfloat16}  # and "sharded": over many files


@dataclass(frozen=True)
class RehearsedCut:
    head: Head
    model_class: str
    cut: str  # a name in CUTS, with how the parent was stored if not as one float32 file
    outcome: Proof | ProbeScaleError

    @property
    def passed(self) -> bool:
        return isinstance(self.outcome, Proof)


def rehearse(models: Sequence[tuple[PreTrainedConfig, Family]]) -> list[list[RehearsedCut]]:
    """For each: every head that transformers has for it, cut in many ways; all of it loaded in one fresh process."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared = [list(_prepare(config, family, Path(scratch) / str(n))) for n, (config, family) in enumerate(models)]
        checks = [p.ready for of_one in prepared for p in of_one if isinstance(p.ready, ProofJob)]
        proofs = iter(prove_folders(checks) if checks else ())
        return [[RehearsedCut(p.head, p.name, p.cut, _outcome(p.ready, proofs)) for p in of_one] for of_one in prepared]


def _outcome(ready: ProofJob | ProbeScaleError, proofs: Iterator[Proof | ProofFailed]) -> Proof | ProbeScaleError:
    return next(proofs) if isinstance(ready, ProofJob) else ready


class Prepared(NamedTuple):
    head: Head
    name: str
    cut: str
    ready: ProofJob | ProbeScaleError


def _prepare(config: PreTrainedConfig, family: Family, scratch: Path) -> Iterator[Prepared]:
    cuts = CUTS | (WHERE_LAYER_1_STAYS if family.layer_1_stays(config) else {})
    for head in HEADS:
        try:
            model = build_twin(config, family, head)
        except Exception as error:  # a class that does not take our small sizes: told, not hidden
            yield Prepared(head, "", "any", ProofFailed(f"no tiny model can be built to try it: {first_line(error)}"))
            continue
        if model is None:
            continue
        for stored in ("", *STORED, "sharded") if head == "none" else ("",):
            parent = _saved(model, stored, scratch / f"{head}-{stored}")
            for cut in ["gaps"] if stored else ["all", "gaps"] if head not in ("none", "lm") else cuts:
                label = f"{cut}, {stored}" if stored else cut
                folder = scratch / f"{head}-{stored}-{cut}"
                ready = _cut(parent, cuts[cut], SECOND.get(cut), folder) if isinstance(parent, LoadedModel) else parent
                yield Prepared(head, type(model).__name__, label, ready)


def _saved(model: PreTrainedModel, stored: str, folder: Path) -> LoadedModel | ProbeScaleError:
    """The model, written to disk and read again as a user's would be."""
    with quiet_transformers():
        options: dict[str, Any] = {"max_shard_size": "10KB"} if stored == "sharded" else {}
        saved = model.to(STORED[stored]) if stored in STORED else model.float()  # type: ignore[arg-type]
        saved.save_pretrained(folder, **options)
        build_twin_tokenizer().save_pretrained(folder)
    try:
        return load_as_saved(str(folder), dtype="auto")
    except ProbeScaleError as error:
        return error


def _cut(
    parent: LoadedModel, kept: tuple[int, ...], second: tuple[int, ...] | None, out: Path
) -> ProofJob | ProbeScaleError:
    try:
        return _cut_out(parent, kept, second, out)
    except ProbeScaleError as error:
        return error
    except Exception as error:  # whatever an unknown class makes of a cut: told, not hidden
        return ProofFailed(f"{type(error).__name__}: {first_line(error)}")


def _cut_out(parent: LoadedModel, kept: tuple[int, ...], second: tuple[int, ...] | None, out: Path) -> ProofJob:
    decoder = second if parent.family.decoder_layers(parent.model) is not None else None
    wanted = compute_layer_reference(parent.model, parent.family, kept, decoder)
    whole = compute_layer_reference(parent.model, parent.family, tuple(range(1, parent.layers + 1)))
    after = find_stack_paths(parent.model, parent.family)[-1]
    if wanted.tolerance and torch.equal(wanted.outputs[after], whole.outputs[after]):
        raise ProofFailed("the cut changes nothing: this trial would prove nothing")
    child = keep_layers(parent, kept, decoder, share=True)
    predicted = count_parameters(parent.model, parent.family).of(kept, decoder)
    write_model(child, out)
    return prepare_proof(child, wanted, predicted, out)
