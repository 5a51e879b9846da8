"""A checkpoint's weight files: finding them, their dtype, and whether they match the config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from probescale.errors import UserError, first_line
from probescale.models.family import Family, Stack
from probescale.utils.files import read_json

# Constants that older versions of transformers saved with the weights.
_CONSTANTS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")
_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


def weight_files(folder: Path, *, allow_pickle: bool, field: str) -> list[Path]:
    """The files that hold the weights; pickles only with `allow_pickle`."""
    if folder.suffix == ".gguf":
        return [folder]
    if (folder / "adapter_config.json").is_file():  # transformers loads it or not, depending on what is installed
        raise UserError(
            f"{folder} has an adapter next to its weights", field=field, hint="merge it into the model first"
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
            f"{folder} has its weights in a pickle ({pickles[0].name}), which can run any code when it is loaded",
            field=field,
            hint="ask its author for safetensors; or, if you trust the file, allow it (--allow-pickle, "
            "model.allow_pickle: true)",
        )
    raise UserError(f"{folder} has no safetensors weights", field=field, hint="save it with save_pretrained")


def _check_index(index: Path, *, field: str) -> None:
    """Refuse an index that names files outside its folder or of another type, such as a pickle."""
    if not index.is_file():
        return
    content = read_json(index, field=field)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict):
        raise UserError(f"{index} is not an index of weights", field=field, hint="download or save the model again")
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name or Path(name).suffix != suffix:
            raise UserError(
                f'{index} names "{name}", which is not a {suffix} file in this folder',
                field=field,
                hint="download the model again, or ask its author",
            )


def stored_dtype(files: Sequence[Path], *, field: str) -> torch.dtype:
    """The dtype of the stored weights, whatever the config says; for several dtypes, one that loses nothing."""
    stored = {kind for path in _safetensors(files) for kind in _read_dtypes(path, field=field).values()}
    floats = {_DTYPES[name] for name in stored if name in _DTYPES}
    return floats.pop() if len(floats) == 1 else torch.float64 if torch.float64 in floats else torch.float32


def _safetensors(files: Iterable[Path]) -> list[Path]:
    """The files whose header says what they hold: GGUF is quantised, and a pickle is not opened for this."""
    return [path for path in files if path.suffix == ".safetensors"]


def _read_dtypes(path: Path, *, field: str) -> dict[str, str]:
    """The dtype of every tensor of a safetensors file, by its header."""
    try:
        with safe_open(path, "pt") as weights:
            return {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - not a dict
    except Exception as error:  # whatever is wrong with the file
        raise UserError(
            f"{path} is not a safetensors file: {first_line(error)}", field=field, hint="download or save it again"
        ) from error


def refuse_unusable_weights(model: PreTrainedModel, files: Iterable[Path], folder: Path, *, field: str) -> None:
    """Refuse weights that are not floats, which transformers would cast in silence, and weights that are not finite."""
    parameters = dict(model.named_parameters())
    for path in _safetensors(files):
        others = {name: kind for name, kind in _read_dtypes(path, field=field).items() if kind not in _DTYPES}
        for name, kind in others.items():  # mostly none; a buffer such as position_ids may hold integers
            if any(name == own or name.endswith(f".{own}") or own.endswith(f".{name}") for own in parameters):
                raise UserError(
                    f"{folder} has {name} in {kind}, which is not a float of 16 bits or more",
                    field=field,
                    hint="give the weights before they were quantised",
                )
    for name, parameter in parameters.items():
        refuse_not_finite(name, parameter, folder, field=field)


def refuse_not_finite(name: str, weight: torch.Tensor, folder: Path, *, field: str) -> None:
    """Refuse a weight with NaN or infinity in it: whatever the model computes would be wrong."""
    if weight.is_floating_point() and weight.numel() and not all(map(torch.isfinite, torch.aminmax(weight.detach()))):
        raise UserError(
            f"{folder} has NaN or infinite values in {name}",
            field=field,
            hint="the weights are damaged: download or save them again",
        )


def refuse_not_finite_files(files: Iterable[Path], folder: Path, *, field: str) -> None:
    """The same check without loading the model: its files are read tensor by tensor."""
    for path in _safetensors(files):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                refuse_not_finite(name, weights.get_tensor(name), folder, field=field)


def refuse_unknown_layers(
    unexpected: Iterable[str], family: Family, model: PreTrainedModel, folder: Path, *, field: str
) -> None:
    """Refuse more layers than in the config, or unknown weights in layers; transformers would drop them silently."""
    for stack in (family.stack, family.decoder):
        blocks = stack.find_in(model) if stack else None
        if stack is None or blocks is None:
            continue
        inside = {name: layer for name in unexpected if (layer := _layer_index(name, stack)) is not None}
        inside = {name: layer for name, layer in inside.items() if not name.endswith(_CONSTANTS)}
        if not inside:
            continue
        if max(inside.values()) >= len(blocks):
            problem = f"weights of more layers than the {len(blocks)} of its config"
            hint = f"correct {stack.layer_count_setting} in its config.json"
        else:
            problem, hint = "weights in its layers that its class does not have", "merge adapters into the model first"
        raise UserError(f"{folder} has {problem}, such as {max(inside)}", field=field, hint=hint)


def refuse_missing(names: set[str], folder: Path, stack: Stack, model: PreTrainedModel, *, field: str) -> None:
    """Refuse a checkpoint that lacks these weights; transformers would draw them at random."""
    if not names:
        return
    in_layers = any(_layer_index(name, stack) is not None for name in names)
    hint = f"its config says {stack.count_layers(model.config)} layers; does the checkpoint have as many?"
    raise UserError(
        f"{folder} lacks {len(names)} weights of its config, or has them in another shape, such as {min(names)}",
        field=field,
        hint=hint if in_layers else "they would be random; check the checkpoint",
    )


def _layer_index(name: str, stack: Stack) -> int | None:
    """The index, from 0, of the layer that a weight belongs to.

    >>> _layer_index("bert.encoder.layer.3.output.dense.bias", Stack("encoder.layer"))
    3
    """
    match = re.search(rf"(?:^|\.){re.escape(stack.blocks)}\.(\d+)\.", name)
    return int(match[1]) if match else None
