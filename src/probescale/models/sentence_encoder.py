"""What makes a model a sentence encoder: sentence-transformers' modules beside it, such as the pooling."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from probescale.errors import UserError
from probescale.utils.files import read_json, write_json

MODULES = "modules.json"
SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")
OWN = "sentence_transformers."  # modules of other packages would bring code of their own
KINDS = (".json", ".safetensors", ".txt")  # no pickles


def is_sentence_encoder(folder: Path) -> bool:
    return folder.is_dir() and (folder / MODULES).is_file()


def copy_modules(source: Path, target: Path) -> list[str]:
    """Copy every module but the transformer, which the target has already; their names."""
    modules = check_modules(source)
    for place, module in enumerate(modules[1:], 1):
        folder = source / module["path"]
        if folder.is_dir():
            names = [path for path in folder.iterdir() if path.suffix in KINDS and path.is_file()]
            (target / module["path"]).mkdir(parents=True, exist_ok=True)
            for path in names:
                shutil.copyfile(path, target / module["path"] / path.name)
        modules[place] = {**module, "idx": place, "name": str(place)}
    write_json(target / MODULES, [{**modules[0], "path": ""}, *modules[1:]])
    for name in SETTINGS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    return [str(module["type"]).rpartition(".")[2] for module in modules[1:]]


def check_modules(source: Path) -> list[dict[str, Any]]:
    """What modules.json says; refused where it names code of others, or leads out of the folder."""
    modules = read_json(source / MODULES, field="MODEL")
    good = isinstance(modules, list) and all(
        isinstance(one, dict) and isinstance(one.get("path"), str) and isinstance(one.get("type"), str)
        for one in modules
    )
    if not good or not modules or "Transformer" not in modules[0]["type"]:
        raise UserError(f"{source / MODULES} is no list of modules that begins with a transformer", field="MODEL")
    for one in modules:
        if not one["type"].startswith(OWN):
            raise UserError(
                f"{source / MODULES} names {one['type']}, code of others, which is never run", field="MODEL"
            )
    for one in modules[1:]:
        path = PurePosixPath(one["path"])
        if path.is_absolute() or ".." in path.parts or "\\" in one["path"] or not path.parts:
            raise UserError(f'{source / MODULES} leads to "{path}", out of the folder', field="MODEL")
    return modules
