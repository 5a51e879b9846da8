"""export, bench, predict: a small model at work."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from probescale.cli.app import app
from probescale.cli.options import Json, Overwrite, quick_imports, show
from probescale.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from probescale.deploy.predict import Prediction

Model = Annotated[str, typer.Argument(help="Run folder, model folder, folder of an export, or hub name.")]


@app.command()
def export(
    model: Model,
    to: Annotated[str, typer.Option(help="Format; see `probescale list exporters`.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights: smaller, and faster on CPUs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder to write.", show_default="MODEL-FORMAT, MODEL-int8")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Largest loss of the task's metric: 0.01 is one point.")
    ] = 0.01,
    overwrite: Overwrite = False,
) -> None:
    """Write a model in another format, such as ONNX, after comparing it with the PyTorch model."""
    with quick_imports():
        from probescale.deploy.export import export as write
        from probescale.deploy.tables import export_lines
    folder = out or Path(f"{model.rstrip('/')}-{'int8' if int8 else to}")
    about = write(model, folder, to, int8=int8, tolerance=tolerance, overwrite=overwrite)
    for line in export_lines(about, to, folder):
        show(line)


@app.command()
def bench(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders or hub names to compare.")],
    batch_size: Annotated[list[int], typer.Option(min=1, help="Texts per batch. Repeatable.")] = [1, 32],  # noqa: B006
    length: Annotated[list[int], typer.Option(min=2, help="Tokens per text. Repeatable.")] = [32, 128],  # noqa: B006
    passes: Annotated[int, typer.Option(min=3, help="Timed passes, after three for warm-up.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads per model.", show_default="all")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw a figure: this name with .svg and .png.")] = None,
    as_json: Json = False,
) -> None:
    """Compare models and formats: latency, throughput, memory, size."""
    from probescale.utils.files import check_output_file

    if figure:
        check_output_file(figure.with_suffix(".svg"), field="--figure")
    with quick_imports():
        import torch

        from probescale.deploy.bench import bench as time_all
        from probescale.deploy.tables import bench_sentence, bench_tables, write_bench_figure
    if threads:
        torch.set_num_threads(threads)
    found = time_all(models, batch_size, length, passes)
    if figure:
        write_bench_figure(found, figure.with_suffix(""))
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    for table in bench_tables(found):
        show(table.rich())
        show("")
    show(bench_sentence(found))


class Shape(str, Enum):
    table = "table"
    jsonl = "jsonl"
    csv = "csv"


@app.command()
def predict(
    model: Model,
    file: Annotated[str, typer.Argument(help="One text per line, .csv, .tsv or .jsonl; -: standard input.")] = "-",
    text: Annotated[str, typer.Option(help="Column or field of the text.")] = "text",
    pair: Annotated[str | None, typer.Option(help="Column or field of the second text.")] = None,
    format_: Annotated[
        Shape | None, typer.Option("--format", help="Output format.", show_default="table, jsonl to a file")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the predictions here.", show_default="standard output")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=2, help="Longest text in tokens; longer ones are cut.", show_default="as in training"),
    ] = None,
) -> None:
    """Predict texts as a stream, in their order; invalid lines are reported, and the others continue."""
    from probescale.deploy.texts import detect_format, read_texts
    from probescale.utils.files import check_output_file

    path = None if file == "-" else Path(file)
    if path and not path.is_file():
        raise UserError(f"{path} does not exist", field="FILE", hint="give a file, or - for standard input")
    if out:
        check_output_file(out)
    with quick_imports():
        from probescale.deploy.open_model import open_model
        from probescale.deploy.predict import predict_lines
    ready = open_model(model)
    shape = format_ or (Shape.jsonl if out or not sys.stdout.isatty() else Shape.table)
    with path.open("rb") if path else sys.stdin.buffer as stream, _written(out) as target:
        answers = predict_lines(ready, read_texts(stream, detect_format(path), text, pair), max_length)
        faults = _write(answers, shape, target)
    if faults:
        typer.echo(f"{faults} line{'s' * (faults > 1)} could not be answered", err=True)
        raise SystemExit(1)


@contextmanager
def _written(out: Path | None) -> Iterator[TextIO]:
    from probescale.utils.files import atomic_file

    if out is None:
        yield sys.stdout
        return
    with atomic_file(out) as partial, partial.open("w", encoding="utf-8", newline="") as target:
        yield target


def _write(answers: Iterable[Prediction], shape: Shape, target: TextIO) -> int:
    """How many lines had no answer."""
    faults = 0
    table = csv.writer(target, lineterminator="\n") if shape is Shape.csv else None
    waiting: list[Prediction] = []
    if table:
        table.writerow(("line", "text", "answer", "probability"))
    for one in answers:
        if one.fault:
            faults += 1
            typer.echo(f"line {one.number}: {one.fault}", err=True)
        if table:
            said = (one.rendered.cell, one.rendered.probability) if one.rendered else ("", None)
            table.writerow((one.number, one.text, *said))
        elif shape is Shape.jsonl:
            target.write(json.dumps(one.record(), ensure_ascii=False) + "\n")
        else:
            waiting.append(one)
            if len(waiting) == ROWS:
                _show(waiting)
                waiting = []
    if waiting:
        _show(waiting)
    return faults


ROWS = 1000  # of one table


def _show(answers: list[Prediction]) -> None:
    from probescale.deploy.tables import answers_table

    show(answers_table(answers).rich())


@app.command()
def push(
    model: Annotated[Path, typer.Argument(help="Run folder, or model folder.")],
    repo: Annotated[str, typer.Argument(help="Repository on the hub: owner/name.")],
    private: Annotated[bool, typer.Option("--private", help="Make the repository private, if it is new.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be uploaded.")] = False,
) -> None:
    """Upload a model and its card to the hub, with the account of `hf auth login`."""
    from probescale.deploy.push import files_of
    from probescale.deploy.push import push as upload
    from probescale.utils.files import format_size

    folder = model / "model" if (model / "model" / "config.json").is_file() else model
    paths = files_of(folder)
    if dry_run:
        for path in paths:
            show(f"{path.relative_to(folder)}  {format_size(path.stat().st_size)}")
        show(f"{len(paths)} files would go to {repo}")
        return
    show(upload(folder, repo, private=private))
