"""bench: compare the speed and size of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Json, Overwrite, quick_imports, show, show_json


@app.command()
def bench(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Folders or hub names to compare; of a ladder, every rung.")
    ],
    batch_size: Annotated[list[int], typer.Option(min=1, help="Texts per batch. Repeatable.")] = [1, 32],  # noqa: B006
    length: Annotated[list[int], typer.Option(min=2, help="Tokens per text. Repeatable.")] = [32, 128],  # noqa: B006
    passes: Annotated[int, typer.Option(min=3, help="Timed passes, after three for warm-up.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads per model.", show_default="all")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw a figure: this name with .svg and .png.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Compare models and formats: latency, throughput, memory, size."""
    from probescale.report.figure import check_figure_files

    if figure:
        check_figure_files(figure.with_suffix(""), inputs=models, overwrite=overwrite, field="--figure")
    with quick_imports():
        import torch

        from probescale.deploy.bench import bench as time_all
        from probescale.deploy.tables import bench_sentence, bench_tables, write_bench_figure
    if threads:
        torch.set_num_threads(threads)
    result = time_all(models, batch_size, length, passes)
    if figure:
        write_bench_figure(result, figure.with_suffix(""))
    if as_json:
        show_json(result)
        return
    for table in bench_tables(result):
        show(table.rich())
        show("")
    show(bench_sentence(result))
