"""export: write a model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Overwrite, Rung, SavedModel, quick_imports, show


@app.command()
def export(
    model: SavedModel,
    rung: Rung = None,
    to: Annotated[str, typer.Option(help="Format; see `probescale list exporters`.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights: smaller, and faster on CPUs.")] = False,
    converter: Annotated[
        str | None,
        typer.Option(
            help="GGUF is written by llama.cpp's converter, which runs only if it is named: pypi fetches that of "
            "llama-cpp-python 0.3.36, pinned by hash; or the folder of your own checkout."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write.", show_default="MODEL[-RUNG]-FORMAT, MODEL[-RUNG]-int8")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Largest loss of the task's metric: 0.01 is one point.")
    ] = 0.01,
    overwrite: Overwrite = False,
) -> None:
    """Write a model in another format, such as ONNX, after comparing it with the PyTorch model."""
    with quick_imports():
        from probescale.deploy.export import export as write
        from probescale.deploy.tables import export_lines
    folder = out or Path("-".join(filter(None, (model.rstrip("/"), rung, "int8" if int8 else to))))
    record = write(
        model, folder, to, rung=rung, int8=int8, tolerance=tolerance, converter=converter, overwrite=overwrite
    )
    for line in export_lines(record, to, folder):
        show(line)
