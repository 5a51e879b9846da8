"""How a sentence encoder makes one vector of a text's states, as its sentence-transformers modules say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from probescale.errors import UserError
from probescale.models.dense_layers import DenseLayer, read_dense_layer, write_dense_layer
from probescale.models.sentence_encoder import MODULES, SETTINGS, check_modules, is_sentence_encoder
from probescale.utils.files import read_json, write_json

MODES = ("mean", "cls", "max", "lasttoken")
_OLD_NAMES = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max", "lasttoken": "lasttoken"}
_CLASSES = "sentence_transformers.models"


@dataclass(frozen=True)
class SentencePooling:
    """Which states of a text become its embedding, and whether that has length 1."""

    mode: str = "mean"
    normalised: bool = True
    states: int = 0  # numbers of a state
    settings: dict[str, Any] = field(default_factory=dict)  # of sentence-transformers: prompts, similarity
    dense: tuple[DenseLayer, ...] = ()  # after the pooling

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return self.dense[-1].width if self.dense else self.states

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """(texts, width) embeddings from (texts, tokens, hidden) states."""
        weights = mask.unsqueeze(-1).to(states.dtype)
        if self.mode == "mean":
            pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        elif self.mode == "max":
            pooled = states.masked_fill(weights == 0, -1e9).max(1).values
        else:
            places = torch.arange(states.shape[1], device=states.device)
            first, last = mask.argmax(1), (places * mask).argmax(1)
            place = first if self.mode == "cls" else last
            pooled = states.gather(1, place[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]
        for layer in self.dense:
            pooled = layer(pooled)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalised else pooled


def read_pooling(folder: Path, width: int, *, field: str = "model.source") -> SentencePooling:
    """The pooling of a model's folder; without modules, the mean of all states with length 1."""
    if not is_sentence_encoder(folder):
        return SentencePooling(states=width)
    modules = check_modules(folder, field=field)
    names = [module["type"].rpartition(".")[2] for module in modules[1:]]
    if not re.fullmatch("Pooling( Dense)*( Normalize)?", " ".join(names)):
        raise UserError(
            f"{folder / MODULES} has the modules {', '.join(names) or 'of a transformer alone'}",
            field=field,
            hint="embeddings are learned of a pooling, with or without dense layers and a normalisation after it",
        )
    settings: dict[str, Any] = read_json(folder / modules[1]["path"] / "config.json", field=field)
    mode, size = _read_mode(settings), settings.get("word_embedding_dimension", settings.get("embedding_dimension"))
    if mode not in MODES:
        raise UserError(f'{folder} has the pooling "{mode}"', field=field, hint=f"known are: {', '.join(MODES)}")
    if size is not None and size != width:
        raise UserError(
            f"the pooling of {folder} is for embeddings of {size} numbers, and its states have {width}",
            field=field,
            hint="its files do not fit together: download or save the model again",
        )
    layers: list[DenseLayer] = []
    for module in modules[2 : 2 + names.count("Dense")]:
        wide = layers[-1].width if layers else width
        layers.append(read_dense_layer(folder / module["path"], wide, field=field))
    more = _read_settings(folder, field=field)
    return SentencePooling(mode, names[-1] == "Normalize", width, more, tuple(layers))


def _read_settings(folder: Path, *, field: str) -> dict[str, Any]:
    """The settings of a sentence encoder, without the versions of whoever saved it."""
    path = folder / SETTINGS[0]
    found = read_json(path, field=field) if path.is_file() else {}
    if found.get("default_prompt_name"):
        raise UserError(
            f'{path} puts the prompt "{found["default_prompt_name"]}" before every text',
            field=field,
            hint="set default_prompt_name to null, and write the prompt into the texts",
        )
    return {name: value for name, value in found.items() if name not in ("__version__", "model_type")}


def _read_mode(settings: dict[str, Any]) -> str:
    """The name of the pooling, which older versions of sentence-transformers write as one yes or no per pooling."""
    if "pooling_mode" in settings:
        mode = settings["pooling_mode"]
        return mode if isinstance(mode, str) else " and ".join(map(str, mode))
    prefix = "pooling_mode_"
    chosen = [name.removeprefix(prefix) for name, on in settings.items() if name.startswith(prefix) and on is True]
    return " and ".join(_OLD_NAMES.get(name, name) for name in chosen)


def write_pooling(pooling: SentencePooling, folder: Path, max_length: int) -> None:
    """Write the modules of a sentence encoder beside its weights, so that sentence-transformers loads the folder."""
    kinds = ["Transformer", "Pooling", *["Dense"] * len(pooling.dense), *["Normalize"] * pooling.normalised]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"{_CLASSES}.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    write_json(folder / MODULES, modules)
    (folder / "1_Pooling").mkdir()
    old = {name: f"pooling_mode_{key}" for key, name in _OLD_NAMES.items()}
    chosen = {key: name == pooling.mode for name, key in old.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": pooling.states, **chosen})
    for number, layer in enumerate(pooling.dense, 2):
        write_dense_layer(layer, folder / f"{number}_Dense")
    if pooling.settings:
        write_json(folder / SETTINGS[0], pooling.settings)
    write_json(folder / SETTINGS[1], {"max_seq_length": max_length, "do_lower_case": False})
