"""calibrate: probe weights from subnetworks that were evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Json, Overwrite, show, show_json


@app.command()
def calibrate(
    scores: Annotated[Path, typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score.")],
    measured: Annotated[
        list[Path], typer.Argument(help="Run folders or metrics.json; or CSV files with the columns layers, value.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write the scores with the learned weights here.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Learn the probes' weights w(p,T) from evaluated subnetworks; says how well they predict others."""
    from probescale.probing.score_files import load_scores
    from probescale.report.tables import calibration_table
    from probescale.selection.calibration import calibrate as learn_weights
    from probescale.selection.measured import describe_measured, load_measured
    from probescale.utils.outputs import check_output_file

    if out:
        check_output_file(out, inputs=[scores, *measured], overwrite=overwrite)
    layer_scores = load_scores(scores)
    by_probe = {name: probe.scores for name, probe in layer_scores.probes.items()}
    calibration = learn_weights(by_probe, load_measured(measured), describe_measured(measured))
    if out:
        layer_scores.with_weights(calibration.weights, calibration.fitted_to).save(out)
    if as_json:
        show_json(calibration)
    else:
        show(calibration_table(calibration).rich())
