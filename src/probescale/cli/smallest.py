"""smallest: the smallest model that keeps a share of the original's metric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Config, Overwrite, Set, show


@app.command()
def smallest(
    config: Config,
    keep: Annotated[str, typer.Option(help="Share of the original's metric to keep, such as 97%.")],
    set_: Set = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of CONFIG>-smallest")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Find the smallest subnetwork that keeps a share of the original's metric, training as few as possible."""
    from probescale.pipeline.validate import load_config
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / f"{config.stem}-smallest"
    settings = load_config(config, [*set_, "selection.k=null", "selection.budget=100%"])  # the search sets the size
    with spinner("loading libraries"):
        from probescale.pipeline.smallest import parse_share
        from probescale.pipeline.smallest import smallest as find_smallest
        from probescale.report.tables import search_notes, search_table
    trace = find_smallest(settings, parse_share(keep), folder, overwrite=overwrite)
    show(search_table(trace).rich())
    for note in search_notes(trace):
        show(note)
    show(f"\nmodel, scores and report: {folder}")
