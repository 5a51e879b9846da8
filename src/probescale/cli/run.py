"""run: the whole method, as a configuration describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Config, Overwrite, Set, finish


@app.command()
def run(
    config: Config,
    set_: Set = [],  # noqa: B006 - typer reads it, nothing changes it
    out: Annotated[Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of CONFIG>")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Probe, select, cut, fine-tune and evaluate, as the configuration says."""
    from probescale.pipeline.validate import load_config
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / config.stem
    settings = load_config(config, set_)
    with spinner("loading libraries"):
        from probescale.pipeline.run import run as run_pipeline
    finish(run_pipeline(settings, folder, overwrite=overwrite), folder)
