"""Keep some layers of a model, and save the result as an ordinary model folder once it is proved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from probescale.errors import ProofFailed, UserError
from probescale.models.counting import count_parameters
from probescale.models.family import Stack, backbone_prefix, check_layers
from probescale.models.layer_config import cut_config
from probescale.models.loading import LoadedModel, compute_fingerprint, empty_weights, quiet_transformers
from probescale.models.proof.comparison import load_options, prepare_proof, prove_folder
from probescale.models.proof.reference import compute_own_reference
from probescale.models.tokenizers import reset_tokenizer
from probescale.utils.files import atomic_folder, check_output_folder, write_json, write_text
from probescale.utils.resources import report_shortage

METADATA_FILE = "probescale.json"


def keep_layers(
    loaded: LoadedModel, kept: Sequence[int], decoder: Sequence[int] | None = None, *, share: bool = False
) -> LoadedModel:
    """A new model of the same stock class with only these layers, renumbered. The parent is not changed.

    `decoder`: the layers of a decoder to keep; None keeps all of them. `share`: use the parent's memory for the new
    model, which is enough to save it.
    """
    parent, family = loaded.model, loaded.family
    kept = family.check_kept(kept, parent.config)
    stacks = [(family.stack, kept)]
    if decoder is not None:
        stacks.append(_decoder_layers(loaded, decoder))
    weights = parent.state_dict()
    for stack, layers in stacks:
        weights = _renumber(weights, f"{backbone_prefix(parent)}{stack.blocks}.", stack.first_block_only, layers)
    weights = weights if share else {name: weight.clone() for name, weight in weights.items()}
    return build_like(loaded, lambda: cut_config(parent.config, family, kept, decoder), weights)


def build_like(
    loaded: LoadedModel, config: Callable[[], PreTrainedConfig], weights: Mapping[str, Tensor]
) -> LoadedModel:
    """A model of the parent's stock class with another config, and exactly these weights."""
    parent = loaded.model
    try:
        with empty_weights():
            child = type(parent)(config(), **load_options(parent))
        child.load_state_dict(weights, strict=True, assign=True)  # strict: no weight missing, none left over
    except Exception as error:  # layers of different shapes, or a config that cannot be cut
        raise ProofFailed(f"these layers do not fit together in {type(parent).__name__}: {_reason(error)}") from error
    _tie_as_in_parent(parent, child)
    if parent.can_generate():
        child.generation_config = copy.deepcopy(parent.generation_config)
    cast("nn.Module", child).to(parent.device)
    return replace(loaded, model=child.eval(), fingerprint=compute_fingerprint(child))


def _reason(error: Exception) -> str:
    """The error message in one line of at most 300 characters; torch lists all missing and unexpected keys."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]} ..."


def _tie_as_in_parent(parent: nn.Module, child: nn.Module) -> None:
    """Tie the parameters that are tied in the parent. The config alone may be wrong: FLAN-T5's head is not tied."""
    tied: dict[int, nn.Parameter] = {}
    modules = dict(child.named_modules())
    own = dict(child.named_parameters(remove_duplicate=False))
    for name, parameter in parent.named_parameters(remove_duplicate=False):
        if name not in own:
            continue  # in a layer that was dropped or renumbered; nothing there is tied
        shared = tied.setdefault(id(parameter), own[name])
        if shared is not own[name]:
            path, _, last = name.rpartition(".")
            modules[path].register_parameter(last, shared)


def _decoder_layers(loaded: LoadedModel, kept: Sequence[int]) -> tuple[Stack, tuple[int, ...]]:
    blocks = loaded.family.decoder_layers(loaded.model)
    if blocks is None or loaded.family.decoder is None:
        raise UserError("this model has no separate decoder", field="--keep-decoder", hint="leave it out")
    return loaded.family.decoder, check_layers(kept, len(blocks), field="--keep-decoder")


def save_model(loaded: LoadedModel, record: dict[str, Any], folder: Path | str, *, overwrite: bool = False) -> None:
    """Save weights, config, tokenizer and probescale.json; the folder appears only once a fresh process proved it."""
    folder = check_output_folder(Path(folder), overwrite=overwrite, markers=[METADATA_FILE])
    model, family = loaded.model, loaded.family
    params = count_parameters(model, family).total
    with report_shortage(folder), atomic_folder(folder) as partial:
        job = prepare_proof(loaded, compute_own_reference(model, family), params, partial)
        write_model(loaded, partial)
        proof = prove_folder(job)
        known = {"class": job.model_class, "params": params}
        write_json(partial / METADATA_FILE, known | record | {"proof": proof.model_dump(mode="json")})


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write weights, config and tokenizer, without references to code that shipped with the parent."""
    for settings in (vars(loaded.model.config), loaded.tokenizer.init_kwargs):
        settings.pop("auto_map", None)  # names code that is not copied
    with quiet_transformers(), _generation_settings(loaded.model, folder):
        loaded.model.save_pretrained(folder)
        reset_tokenizer(loaded.tokenizer).save_pretrained(folder)


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


def _renumber(
    weights: dict[str, Tensor], stack: str, first_block_only: Sequence[str], kept: Sequence[int]
) -> dict[str, Tensor]:
    """The parent's weights under their names in the cut model; `stack` is the prefix of its layers."""
    outside: dict[str, Tensor] = {}
    inside: dict[int, dict[str, Tensor]] = {}  # layer -> name within the block -> weight
    for name, weight in weights.items():
        if name.startswith(stack):
            index, _, inner = name.removeprefix(stack).partition(".")
            inside.setdefault(int(index) + 1, {})[inner] = weight
        else:
            outside[name] = weight
    shared = {inner: inside[1].pop(inner) for inner in first_block_only}
    for new, layer in enumerate(kept):
        again = layer in kept[:new]  # a layer that runs twice gets its own weights each time
        block = {inner: weight.clone() if again else weight for inner, weight in inside[layer].items()}
        block |= shared if new == 0 else {}
        outside |= {f"{stack}{new}.{inner}": weight for inner, weight in block.items()}
    return outside
