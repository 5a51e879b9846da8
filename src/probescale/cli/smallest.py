"""smallest: the smallest model that keeps a share of the original's metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Config, Overwrite, Set, show

if TYPE_CHECKING:
    from probescale.config import RunConfig


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

    folder = out or Path("runs") / f"{config.stem}-smallest"
    settings = load_config(config, [*set_, "selection.k=null", "selection.budget=100%"])  # the search sets the size
    run_search(settings, keep, folder, overwrite=overwrite)


def run_search(settings: RunConfig, keep: str, folder: Path, *, overwrite: bool) -> None:
    """Search, and print what was found. A model that did not learn the task ends the command with exit code 1."""
    from probescale.utils.progress import spinner

    with spinner("loading libraries"):
        from probescale.pipeline.smallest import parse_share
        from probescale.pipeline.smallest import smallest as find_smallest
        from probescale.report.findings import RunFindings
        from probescale.report.tables import search_notes, search_table
        from probescale.report.verdict import run_summary
    found = find_smallest(settings, parse_share(keep), folder, overwrite=overwrite)
    show(search_table(found).rich())
    for note in search_notes(found):
        show(note)
    findings = RunFindings.load(folder)
    verdict, *details = run_summary(findings)
    for line in (f"On {findings.result.split}, measured once: {verdict}", *details):
        show(f"\n{line}")
    show(f"\nmodel, scores and report: {folder}")
    if findings.result.failure:
        raise typer.Exit(1)
