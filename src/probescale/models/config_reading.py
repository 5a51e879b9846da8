"""Read a model's config, and refuse configs that ask for code or weights from elsewhere."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig

from probescale.errors import UserError
from probescale.models.tokenizers import gguf_options
from probescale.utils.sources import fetch_model_folder

_IMPLEMENTATIONS = ("_attn_implementation", "_experts_implementation")  # may name code on the hub


def read_config(source: str, revision: str | None = None, *, field: str = "model.source") -> PreTrainedConfig:
    """The config of a model; from the hub, no other file is downloaded."""
    return read_folder_config(fetch_model_folder(source, revision, field=field, config_only=True), field=field)


def read_folder_config(folder: Path, *, field: str) -> PreTrainedConfig:
    """The config of a model folder or a GGUF file."""
    place, options = gguf_options(folder, field=field)
    try:
        config = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # whatever the library raises for a broken file
        if "remote code" in str(error) or "custom code" in str(error):
            raise UserError(
                f"{folder} needs Python code; code that ships with a model is never executed",
                field=field,
                hint="use a model whose class is part of transformers; see `probescale list families`",
            ) from error
        reason = " ".join(str(error).split()).split(". ")[0]
        raise UserError(
            f"{folder} has a config that transformers refuses: {reason}",
            field=field,
            hint="see `probescale list families` for what is supported",
        ) from error
    _refuse_external(config, folder, field=field)
    return config


def _refuse_external(config: PreTrainedConfig, folder: Path, *, field: str) -> None:
    """Refuse a config that names attention code on the hub, which transformers would download and execute, or weights
    in a file that was not checked."""
    parts = [config, *(value for value in vars(config).values() if isinstance(value, PreTrainedConfig))]
    named = [str(getattr(part, name, "")) for part in parts for name in _IMPLEMENTATIONS]
    if on_hub := [name for name in named if "/" in name]:
        raise UserError(
            f"{folder} asks for code from the hub, {on_hub[0]}; such code is never executed",
            field=field,
            hint="remove attn_implementation from its config.json",
        )
    if elsewhere := getattr(config, "transformers_weights", None):
        raise UserError(
            f'{folder} has its weights in "{elsewhere}"',
            field=field,
            hint="rename the file to model.safetensors, and remove transformers_weights from config.json",
        )
