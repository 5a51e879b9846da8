"""A checkpoint's files: which hold the weights, how they are stored, and whether they are what the config says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from probescale.errors import UserError, first_line
from probescale.models.family import Family, Stack
from probescale.utils.files import read_json

# Constants that older versions of transformers stored with the weights.
_CONSTANTS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")
_WIDTHS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


def weight_files(folder: Path, *, allow_pickle: bool, field: str) -> list[Path]:
    """The files that hold the weights; pickles only where that was asked for."""
    if folder.suffix == ".gguf":
        return [folder]
    if (folder / "adapter_config.json").is_file():  # read or not, depending on what else is installed
        raise UserError(
            f"{folder} has an adapter beside its weights", field=field, hint="merge it into the model first"
        )
    for index in (folder / "model.safetensors.index.json", folder / "pytorch_model.bin.index.json"):
        _check_index(index, field=field)
    if files := sorted(folder.glob("model*.safetensors")):
        return files
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    if pickles and allow_pickle:
        return pickles
    if pickles:
        raise UserError(
            f"{folder} has its weights in a pickle ({pickles[0].name}), which could run any code when it is read",
            field=field,
            hint="ask its author for safetensors; or, if you trust the file, allow it (--allow-pickle, "
            "model.allow_pickle: true)",
        )
    raise UserError(f"{folder} has no safetensors weights", field=field, hint="save it with save_pretrained")


def _check_index(index: Path, *, field: str) -> None:
    """An index names the files of weights: those of its folder and of its own kind, or a pickle could come in so."""
    if not index.is_file():
        return
    found = read_json(index, field=field)
    names = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(names, dict):
        raise UserError(f"{index} is no index of weights", field=field, hint="fetch or save the model again")
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name or Path(name).suffix != suffix:
            raise UserError(
                f'{index} leads to "{name}", which is no {suffix} file of this folder',
                field=field,
                hint="fetch the model again, or ask its author",
            )


def stored_dtype(files: Iterable[Path], *, field: str) -> torch.dtype:
    """How the weights are stored, whatever the config says of it; of several the one that loses nothing."""
    found = set()
    for path in files:
        if path.suffix != ".safetensors":
            return torch.float32  # quantised, or a pickle that is not opened to look
        try:
            with safe_open(path, "pt") as weights:
                found |= {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - not a dict
        except Exception as error:  # whatever is wrong with the file
            raise UserError(
                f"{path} is not a safetensors file: {first_line(error)}", field=field, hint="fetch or save it again"
            ) from error
    floats = {_WIDTHS[name] for name in found if name in _WIDTHS}
    return floats.pop() if len(floats) == 1 else torch.float64 if torch.float64 in floats else torch.float32


def refuse_unknown_layers(
    unexpected: Iterable[str], family: Family, model: PreTrainedModel, folder: Path, *, field: str
) -> None:
    """More layers than the config has, or other weights in them: transformers would leave them out and say little."""
    for stack in (family.stack, family.decoder):
        blocks = stack.find_in(model) if stack else None
        if stack is None or blocks is None:
            continue
        inside = {name: layer for name in unexpected if (layer := _layer_of(name, stack)) is not None}
        inside = {name: layer for name, layer in inside.items() if not name.endswith(_CONSTANTS)}
        if not inside:
            continue
        if max(inside.values()) >= len(blocks):
            many = f"weights of more layers than the {len(blocks)} of its config"
            hint = f"correct {stack.layer_count_setting} in its config.json"
        else:
            many, hint = "weights in its layers that its class does not know", "merge adapters into the model first"
        raise UserError(f"{folder} has {many}, such as {max(inside)}", field=field, hint=hint)


def refuse_missing(names: set[str], folder: Path, stack: Stack, model: PreTrainedModel, *, field: str) -> None:
    if not names:
        return
    in_layers = any(_layer_of(name, stack) is not None for name in names)
    hint = f"its config says {stack.count_layers(model.config)} layers; does the checkpoint have as many?"
    raise UserError(
        f"{folder} lacks {len(names)} weights its config asks for (or of another shape), such as {min(names)}",
        field=field,
        hint=hint if in_layers else "they would be random; check the checkpoint",
    )


def _layer_of(name: str, stack: Stack) -> int | None:
    """The layer, from 0, that a weight belongs to.

    >>> _layer_of("bert.encoder.layer.3.output.dense.bias", Stack("encoder.layer"))
    3
    """
    found = re.search(rf"(?:^|\.){re.escape(stack.blocks)}\.(\d+)\.", name)
    return int(found[1]) if found else None
