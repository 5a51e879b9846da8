"""Save models as ordinary folders that stock transformers loads, with a proof and a description in probescale.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.models.pooling import write_pooling
from probescale.models.proof.comparison import load_options, prepare_proof, prove_folder
from probescale.models.proof.reference import compute_own_reference
from probescale.models.tokenizers import reset_tokenizer
from probescale.utils.files import atomic_folder, write_json, write_text
from probescale.utils.outputs import check_output_folder
from probescale.utils.resources import report_shortage

METADATA_FILE = "probescale.json"
MODEL_KIND = "model"  # of a folder


def save_model(
    loaded: LoadedModel,
    record: dict[str, Any],
    folder: Path | str,
    *,
    overwrite: bool = False,
    max_length: int = 128,
) -> None:
    """Save weights, config, tokenizer and probescale.json; the folder appears only once a fresh process proved it.

    `max_length`: tokens after which training cut its texts. The tokenizer allows at least as many, so that stock
    pipelines read them. A sentence encoder also gets the modules of sentence-transformers, which cut there.
    """
    folder = check_output_folder(Path(folder), kind=MODEL_KIND, inputs=[loaded.source], overwrite=overwrite)
    model, family = loaded.model, loaded.family
    params = count_parameters(model, family).total
    with report_shortage(folder), atomic_folder(folder, MODEL_KIND, also=["README.md"]) as partial:
        job = prepare_proof(loaded, compute_own_reference(model, family), params, partial)
        if tokenizer := loaded.own_tokenizer:
            tokenizer.model_max_length = max(tokenizer.model_max_length, max_length)
        write_model(loaded, partial)
        if loaded.pooling:
            write_pooling(loaded.pooling, partial, max_length)
        proof = prove_folder(job)
        known = {"class": job.model_class, "params": params}
        write_json(partial / METADATA_FILE, known | record | {"proof": proof.model_dump(mode="json")})


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write weights, config and tokenizer, without references to code that shipped with the parent."""
    tokenizer = loaded.own_tokenizer
    for settings in (vars(loaded.model.config), tokenizer.init_kwargs if tokenizer else {}):
        settings.pop("auto_map", None)  # names code that is not copied
    with quiet_transformers(), _generation_settings(loaded.model, folder):
        loaded.model.save_pretrained(folder)
        if tokenizer:
            reset_tokenizer(tokenizer).save_pretrained(folder)


@contextmanager
def _generation_settings(model: PreTrainedModel, folder: Path) -> Iterator[None]:
    """Save the generation settings unchanged: transformers loads contradicting settings but refuses to save them."""
    settings = model.generation_config if model.can_generate() else None
    if settings is None:
        yield
        return
    model.generation_config = GenerationConfig.from_model_config(model.config)
    try:
        yield
        write_text(folder / "generation_config.json", settings.to_json_string())
    finally:
        model.generation_config = settings


def describe_cut(
    loaded: LoadedModel, kept: Sequence[int], child: LoadedModel, decoder: Sequence[int] | None = None
) -> dict[str, Any]:
    """The part of probescale.json about the cut: parent, layers, parameters, and the stock class that loads it."""
    parent = count_parameters(loaded.model, loaded.family)
    record = {
        "parent": loaded.source,
        "parent_sha256": loaded.fingerprint,
        "kept": list(kept),
        "dropped": _others(kept, loaded.layers),
        "params": parent.of(kept, decoder),
        "params_original": parent.total,
        "class": type(child.model).__name__,
        "dtype": str(child.model.dtype).removeprefix("torch."),
    }
    if parent.decoder:
        kept_decoder = list(decoder or range(1, len(parent.decoder) + 1))
        record |= {"kept_decoder": kept_decoder, "dropped_decoder": _others(kept_decoder, len(parent.decoder))}
    if options := load_options(child.model):
        record["load_with"] = options
    # Without a problem type the head was meant for tokens, not for texts.
    if loaded.family.mean_of_token_logits and child.model.config.problem_type is not None:
        record["sentence_logits"] = "mean of the token logits over the attention mask"
    return record


def _others(kept: Sequence[int], layers: int) -> list[int]:
    return [layer for layer in range(1, layers + 1) if layer not in kept]
