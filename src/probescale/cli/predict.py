"""predict: a stream of texts in, predictions out."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from probescale.cli.app import app
from probescale.cli.options import Overwrite, Rung, SavedModel, quick_imports, show
from probescale.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from probescale.deploy.inference import InferenceModel
    from probescale.deploy.texts import Line


class Shape(str, Enum):
    """Output formats of --format."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"


_Text = Annotated[
    str | None,
    typer.Option(
        help="Column or field of the text; a column also by number, from 1.", show_default="as in training, or text"
    ),
]
_Pair = Annotated[str | None, typer.Option(help="Column or field of the second text.", show_default="as in training")]
_Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="CSV and TSV: the first line names the columns; or it is a row, and they are 1, 2, ...",
        show_default="as in training",
    ),
]
_File = Annotated[
    str, typer.Argument(help="One text per line, or a table (.csv, .jsonl, .parquet ...); -: standard input.")
]


@app.command()
def predict(
    model: SavedModel,
    file: _File = "-",
    rung: Rung = None,
    text: _Text = None,
    pair: _Pair = None,
    header: _Header = None,
    format_: Annotated[
        Shape | None,
        typer.Option("--format", help="Output format.", show_default="that of --out, else table, jsonl to a pipe"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the predictions here: .jsonl or .csv; embeddings also .npy or .parquet.",
            show_default="standard output",
        ),
    ] = None,
    overwrite: Overwrite = False,
    max_length: Annotated[
        int | None,
        typer.Option(min=2, help="Longest text in tokens; longer ones are cut.", show_default="as in training"),
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Generative models: the most tokens to write.", show_default="64")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Generative models: texts are questions, put into the chat template.")
    ] = False,
) -> None:
    """Predict texts as a stream, in their order; invalid lines are reported, and the others continue.

    The answer is written beside the other columns or fields of a row. A generative model goes on with every text.
    """
    from probescale.deploy.texts import detect_format, open_texts

    path = None if file == "-" else Path(file)
    _check_files(path, out, format_, model, overwrite=overwrite)
    with quick_imports():
        from probescale.deploy.continuations import WritingOptions
        from probescale.deploy.open_model import open_model
        from probescale.deploy.predict import predict_lines, require_kind
        from probescale.deploy.tables import prediction_tables
        from probescale.deploy.write_predictions import WRITERS, FaultCounter, open_output
        from probescale.deploy.write_vectors import VECTORS, refuse_without_vectors, write_vectors
    if header is not None and detect_format(path) not in ("csv", "tsv"):
        raise UserError("only .csv and .tsv files can lack a header", field="--header", hint="leave it out")
    opened = open_model(model, rung)
    shape = format_ or _default_shape(out)
    faults = FaultCounter(lambda message: typer.echo(message, err=True))
    vectors = out is not None and out.suffix in VECTORS
    with open_texts(path) as stream, open_output(None if vectors else out) as target:
        lines = _read_lines(stream, path, text, pair, opened, header)
        kind = require_kind(opened)
        writing = WritingOptions(new_tokens or WritingOptions.tokens, chat) if new_tokens or chat else None
        predictions = faults.watch(predict_lines(opened, lines, max_length, writing))
        if out and vectors:
            refuse_without_vectors(kind)
            write_vectors(opened, predictions, out)
        elif shape is Shape.table:
            for table in prediction_tables(predictions, kind):
                show(table.rich())
        else:
            WRITERS[shape.value](predictions, target, kind)
    if faults.count:
        typer.echo(f"{faults.count} line{'s' * (faults.count > 1)} could not be answered", err=True)
        raise SystemExit(1)


def _read_lines(
    stream: BinaryIO,
    path: Path | None,
    text: str | None,
    pair: str | None,
    model: InferenceModel,
    header: bool | None,
) -> Iterator[Line]:
    """The lines of a file, with the columns that were named; of those that were not, the ones of training."""
    from probescale.deploy.metadata import InputColumns
    from probescale.deploy.texts import detect_format, read_texts, read_whole_table

    kind, learned = detect_format(path), model.columns or InputColumns()
    first, otherwise = (learned.text, "text") if text is None else (text, None)
    second = learned.pair if pair is None and model.on_pairs else pair
    if second is not None and kind == "lines":
        learned_so = f"{model.name} was trained on pairs of texts, and " if model.on_pairs else ""
        raise UserError(
            f"{learned_so}plain lines have no second text",
            field="FILE",
            hint=f'give a table (.csv, .tsv, .jsonl, .parquet) with the columns "{first}" and "{second}"',
        )
    if first == second:
        raise UserError(
            f'"{first}" would be read as the text and as the second text',
            field="--pair",
            hint="name two different columns with --text and --pair",
        )
    if path and kind == "columns":
        return read_whole_table(path, first, second, otherwise=otherwise)
    named = learned.header if header is None else header
    return read_texts(stream, kind, first, second, otherwise=otherwise, header=named)


def _default_shape(out: Path | None) -> Shape:
    """The format that the name of the output asks for; a table where a person reads it."""
    if out:
        return Shape.csv if out.suffix == ".csv" else Shape.jsonl
    return Shape.table if sys.stdout.isatty() else Shape.jsonl


def _check_files(path: Path | None, out: Path | None, shape: Shape | None, model: str, *, overwrite: bool) -> None:
    """Refuse a missing file of texts, and an output that would replace something else."""
    from probescale.utils.outputs import check_output_file

    if path and not path.is_file():
        raise UserError(f"{path} does not exist", field="FILE", hint="give a file, or - for standard input")
    if out and shape is Shape.table:
        raise UserError("a table is for the terminal, not for a file", field="--format", hint="use jsonl or csv")
    if out:
        check_output_file(out, inputs=[model, *([path] if path else [])], overwrite=overwrite)
