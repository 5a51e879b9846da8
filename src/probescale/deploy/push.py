"""Upload a model folder to the hub, with the hub's own client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from probescale.errors import UserError, first_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HIDDEN = "."  # files whose names begin with it stay here


def list_files(folder: Path) -> list[Path]:
    """The files that push() uploads."""
    if not (folder / "config.json").is_file():
        raise UserError(
            f'"{folder}" is not a model folder: it has no config.json',
            field="MODEL",
            hint="give a run's folder, or one that `extract` or `export` wrote",
        )
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in paths if not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)]


def push(folder: Path, repo: str, *, private: bool = False, client: HfApi | None = None) -> str:
    """Upload a model folder; returns the address of the commit. The client finds the token itself (`hf auth login`)."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    paths = [str(path.relative_to(folder)) for path in list_files(folder)]
    client = client or HfApi()
    try:
        client.create_repo(repo, private=private, exist_ok=True)
        done = client.upload_folder(
            repo_id=repo, folder_path=folder, allow_patterns=paths, commit_message="A subnetwork made with ProbeScale"
        )
    except LocalTokenNotFoundError as error:
        raise UserError("you are not logged in to the hub", field="REPO", hint="run `hf auth login`") from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(f"the hub refuses {repo}: {first_line(error)}", field="REPO") from error
    return str(done)
