"""Cut a model down to some of its layers, and save it as an ordinary model folder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from probescale.errors import UserError
from probescale.files import check_output_folder, whole_folder, write_json
from probescale.models.counting import count_parameters
from probescale.models.families import Family, backbone_prefix
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.models.tokenizers import as_new

RECORD = "probescale.json"


def check_layers(kept: Sequence[int], layers: int, *, field: str = "--keep") -> tuple[int, ...]:
    """Layers numbered from 1, in the order in which they will run."""
    if not kept:
        raise UserError("no layer is kept", field=field, hint=f"give layers between 1 and {layers}")
    if outside := [layer for layer in kept if not 1 <= layer <= layers]:
        raise UserError(f"layer {outside[0]} does not exist", field=field, hint=f"give layers between 1 and {layers}")
    return tuple(kept)


def extract(loaded: LoadedModel, kept: Sequence[int]) -> LoadedModel:
    """A new model of the same stock class with only the kept layers, renumbered. The parent is left as it is."""
    kept = check_layers(kept, loaded.layers)
    parent, family = loaded.model, loaded.family
    config = copy.deepcopy(parent.config)
    setattr(config, family.layer_count, len(kept))
    has_no_pooler = getattr(parent, "pooler", "not a class with a pooler") is None
    with parent.device:
        child = type(parent)(config, **({"add_pooling_layer": False} if has_no_pooler else {}))
    child.load_state_dict(_renumbered(parent, family, kept), strict=True)  # strict: no weight missing, none left over
    return replace(loaded, model=child.eval())


def save_model(loaded: LoadedModel, record: dict[str, Any], folder: Path | str, *, overwrite: bool = False) -> None:
    """Weights as safetensors, config, tokenizer, and probescale.json with where the model comes from."""
    folder = check_output_folder(Path(folder), overwrite=overwrite, markers=[RECORD])
    with whole_folder(folder) as partial, quiet_transformers():
        loaded.model.save_pretrained(partial)
        as_new(loaded.tokenizer).save_pretrained(partial)
        write_json(partial / RECORD, record)


def record_of(loaded: LoadedModel, kept: Sequence[int], child: LoadedModel) -> dict[str, Any]:
    """What probescale.json says of a cut: parent, layers, counts, and the stock class that loads it."""
    before, after = (count_parameters(m.model, m.family).total for m in (loaded, child))
    record = {
        "parent": loaded.source,
        "parent_sha256": loaded.fingerprint,
        "kept": list(kept),
        "dropped": [layer for layer in range(1, loaded.layers + 1) if layer not in kept],
        "params": after,
        "params_original": before,
        "class": type(child.model).__name__,
    }
    if loaded.family.mean_of_token_logits and "classifier.weight" in child.model.state_dict():
        record["sentence_logits"] = "mean of the token logits over the attention mask"
    return record


def _renumbered(parent: PreTrainedModel, family: Family, kept: Sequence[int]) -> dict[str, Any]:
    """The parent's weights under the names they have in the child."""
    stack = f"{backbone_prefix(parent)}{family.blocks}."
    outside: dict[str, Any] = {}
    inside: dict[int, dict[str, Any]] = {}  # layer -> name within the block -> weight
    for name, weight in parent.state_dict().items():
        if name.startswith(stack):
            index, _, inner = name.removeprefix(stack).partition(".")
            inside.setdefault(int(index) + 1, {})[inner] = weight
        else:
            outside[name] = weight
    shared = {inner: inside[1].pop(inner) for inner in family.first_block_only}
    blocks = [inside[layer] | (shared if new == 0 else {}) for new, layer in enumerate(kept)]
    return outside | {f"{stack}{new}.{inner}": w for new, block in enumerate(blocks) for inner, w in block.items()}
