"""probe: how much every layer knows about the task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Config, Overwrite, Set, show


@app.command()
def probe(
    config: Config,
    set_: Set = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Scores file to write.")] = Path("scores.json"),
    overwrite: Overwrite = False,
) -> None:
    """Score every layer for the task; writes scores.json and its figure (SVG, PNG)."""
    from probescale.pipeline.validate import load_config
    from probescale.probing.score_files import is_scores_file
    from probescale.report.figure import check_figure_files
    from probescale.utils.outputs import check_output_file
    from probescale.utils.progress import spinner

    settings = load_config(config, set_)
    inputs = [config, *settings.list_sources()]
    check_figure_files(out.with_suffix(""), scores=out, inputs=inputs, overwrite=overwrite)
    check_output_file(out, inputs=inputs, overwrite=overwrite, is_own=is_scores_file)
    with spinner("loading libraries"):
        from probescale.pipeline.evidence import probe_task
        from probescale.pipeline.prepare import prepare
        from probescale.report.figure import write_figure
        from probescale.report.probes import probe_notes, probe_tables
    scores = probe_task(prepare(settings))
    scores.save(out)
    figures = write_figure(scores, out.with_suffix(""))
    for table in probe_tables(scores):
        show(table.rich())
        show("")
    for note in probe_notes(scores):
        show(note)
    show(f"\nscores: {out}, figure: {figures[0]}, {figures[1]}")
