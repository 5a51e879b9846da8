"""Sentence encoders: the modules of sentence-transformers in a model folder, such as the pooling."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from probescale.errors import UserError
from probescale.utils.files import read_json, write_json

MODULES = "modules.json"
SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")
# Classes of sentence-transformers that a folder may name. Loading it imports what stands there, whatever that is.
CLASSES = (
    *("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "WeightedLayerPooling"),
    *("CNN", "LSTM", "BoW", "WordWeights", "WordEmbeddings", "StaticEmbedding", "Asym", "Router"),
)
_PLACES = r"models|base\.modules|sentence_transformer\.modules"  # before version 6, and since
_TRUSTED = re.compile(rf"sentence_transformers\.({_PLACES})(\.\w+)?\.({'|'.join(CLASSES)})")
COPIED_SUFFIXES = (".json", ".safetensors", ".txt")  # no pickles


def is_sentence_encoder(folder: Path) -> bool:
    """Whether a folder holds a sentence-transformers model."""
    return folder.is_dir() and (folder / MODULES).is_file()


def copy_modules(source: Path, target: Path) -> list[str]:
    """Copy every module but the transformer, which the target already has; returns their class names."""
    modules = check_modules(source)
    for place, module in enumerate(modules[1:], 1):
        folder = source / module["path"]
        if folder.is_dir():
            names = [path for path in folder.iterdir() if path.suffix in COPIED_SUFFIXES and path.is_file()]
            (target / module["path"]).mkdir(parents=True, exist_ok=True)
            for path in names:
                shutil.copyfile(path, target / module["path"] / path.name)
        modules[place] = {**module, "idx": place, "name": str(place)}
    write_json(target / MODULES, [{**modules[0], "path": ""}, *modules[1:]])
    for name in SETTINGS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    return [str(module["type"]).rpartition(".")[2] for module in modules[1:]]


def check_modules(source: Path, *, field: str = "MODEL") -> list[dict[str, Any]]:
    """The entries of modules.json; refused if they name other packages' code or a path outside the folder."""
    modules = read_json(source / MODULES, field=field)
    well_formed = isinstance(modules, list) and all(
        isinstance(module, dict) and isinstance(module.get("path"), str) and isinstance(module.get("type"), str)
        for module in modules
    )
    if not well_formed or not modules or "Transformer" not in modules[0]["type"]:
        raise UserError(
            f"{source / MODULES} is not a list of modules that begins with a transformer",
            field=field,
            hint="download or save the model again, or remove this file: then the mean of all states is used",
        )
    for module in modules:
        if not _TRUSTED.fullmatch(module["type"]):
            raise UserError(
                f"{source / MODULES} names {module['type']}; code that ships with a model is never executed",
                field=field,
                hint=f"known are the modules of sentence-transformers: {', '.join(CLASSES[:4])} and others of its own; "
                "give a model that is made of them",
            )
    for module in modules[1:]:
        path = PurePosixPath(module["path"])
        if path.is_absolute() or ".." in path.parts or "\\" in module["path"] or not path.parts:
            raise UserError(f'{source / MODULES} names "{path}", which is outside the folder', field=field)
    return modules
