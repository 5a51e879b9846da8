"""extract: cut a model by hand, and prove the cut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import AllowPickle, Overwrite, Revision, quick_imports, show
from probescale.errors import UserError
from probescale.models.subsets import parse_layers


@app.command()
def extract(
    model: Annotated[str, typer.Argument(help="Local folder, GGUF file, hub name, or pypi: source.")],
    keep: Annotated[str, typer.Option(help="Layers from 1, such as 1,2,5 or 1-4,9; any order, also repeated.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    keep_decoder: Annotated[
        str | None, typer.Option(help="Layers of an encoder-decoder's decoder.", show_default="all")
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(help="Number of attention heads that every layer keeps, chosen by --scores.", show_default="all"),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="scores.json of the uncut model, with probed heads.", show_default=False)
    ] = None,
    encoder_only: Annotated[bool, typer.Option("--encoder-only", help="Drop the decoder (T5, mT5).")] = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut a model down to the given layers (and heads) and prove the cut; the folder loads with stock transformers."""
    kept = parse_layers(keep)
    decoder = parse_layers(keep_decoder, "--keep-decoder") if keep_decoder is not None else None
    if decoder is not None and encoder_only:
        raise UserError("an encoder alone has no decoder", field="--keep-decoder", hint="leave one of the two out")
    from probescale.utils.outputs import check_output_folder

    check_output_folder(out, kind="model", inputs=[model, *([scores] if scores else [])], overwrite=overwrite)
    from probescale.utils.progress import spinner

    with spinner("loading libraries"), quick_imports():
        from probescale.pipeline.cut import cut_to_folder
        from probescale.report.extract import extract_summary

    record = cut_to_folder(
        model,
        kept,
        out,
        decoder=decoder,
        heads=heads,
        head_scores=scores,
        encoder_only=encoder_only,
        revision=revision,
        allow_pickle=allow_pickle,
        overwrite=overwrite,
    )
    for line in extract_summary(record, out):
        show(line)
