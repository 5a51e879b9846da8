"""doctor: whether and how a model is supported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Json, Overwrite, Revision, quick_imports, show, show_json


@app.command()
def doctor(
    model: Annotated[
        str, typer.Argument(help="Folder, GGUF file, hub name, or a well-known name such as roberta-large.")
    ],
    prove: Annotated[
        bool,
        typer.Option("--prove", help="Cut a tiny model of the same architecture in many ways, and prove every cut."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the configuration to this file.")] = None,
    overwrite: Overwrite = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Say whether and how a model is supported: layers, parameters, heads, limits, a configuration to start from."""
    from probescale.utils.files import write_text
    from probescale.utils.outputs import check_output_file

    if out:
        check_output_file(out, inputs=[model], overwrite=overwrite)
    with quick_imports():
        from probescale.report.doctor import doctor_page
        from probescale.report.examination import examine

    found = examine(model, revision, prove=prove)
    if out:
        write_text(out, found.start_from)
    if as_json:
        show_json(found)
    else:
        for part in doctor_page(found):
            show(part if isinstance(part, str) else part.rich())
        if out:
            show(f"written to {out}")
    if found.tried and found.tried.failures:
        raise SystemExit(1)
