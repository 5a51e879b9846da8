"""push: upload a model to the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Rung, show


@app.command()
def push(
    model: Annotated[Path, typer.Argument(help="Run folder, or model folder.")],
    repo: Annotated[str, typer.Argument(help="Repository on the hub: owner/name.")],
    rung: Rung = None,
    private: Annotated[bool, typer.Option("--private", help="Make the repository private, if it is new.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be uploaded.")] = False,
) -> None:
    """Upload a model and its card to the hub, with the account of `hf auth login`."""
    from probescale.deploy.model_folder import find_model_folder
    from probescale.deploy.push import list_files
    from probescale.deploy.push import push as upload
    from probescale.utils.files import format_size

    folder = find_model_folder(model, rung)
    paths = list_files(folder)
    if dry_run:
        for path in paths:
            show(f"{path.relative_to(folder)}  {format_size(path.stat().st_size)}")
        show(f"{len(paths)} files would go to {repo}")
        return
    show(upload(folder, repo, private=private))
