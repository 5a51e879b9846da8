"""plan, doctor, extract: a model by itself."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import (
    AllowPickle,
    BatchSize,
    Budgets,
    Json,
    Overwrite,
    Revision,
    quick_imports,
    show,
)
from probescale.errors import UserError
from probescale.models.subsets import parse_layers


class Dtype(str, Enum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"


class HeadName(str, Enum):
    none = "none"
    sentence = "sentence"
    token = "token"
    regression = "regression"
    lm = "lm"


@app.command()
def plan(
    model: Annotated[str, typer.Argument(help="Folder, GGUF file, hub name, or a well-known name as roberta-large.")],
    budget: Budgets = [],  # noqa: B006
    head: Annotated[HeadName, typer.Option(help="What the model answers; lm: next or hidden tokens.")] = HeadName.none,
    classes: Annotated[int, typer.Option(min=2, help="Number of labels of the head.")] = 2,
    length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of a text, for GFLOPs and ms.", show_default="128, or what the model can take"
        ),
    ] = None,
    batch_size: BatchSize = 1,
    dtype: Annotated[Dtype, typer.Option(help="How weights are stored, for megabytes.")] = Dtype.float32,
    timed: Annotated[bool, typer.Option("--timed", help="Also measure milliseconds on this machine.")] = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Show what every number of layers would cost; needs the config alone, no weights."""
    from probescale.models.facts import built_in_facts
    from probescale.report.plan import plan_facts, plan_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.planning import plan as make_plan
    from probescale.utils.sources import is_local

    limits = parse_budget(budget, where="--") if budget else None
    timed = timed or (limits is not None and "milliseconds" in limits.units)
    facts = None
    if head is HeadName.none and not timed and not revision and not is_local(model):
        facts = built_in_facts(model, length)  # answered at once
    milliseconds = None
    if facts is None:
        with quick_imports():
            from probescale.models.architecture import compute_facts, read_architecture
            from probescale.models.budget_costs import Workload, measure_milliseconds
        what = read_architecture(model, revision)
        facts = compute_facts(what, head.value, classes, length)
        if timed:
            workload = Workload(what.config, what.family, head.value, length=facts.length, batch_size=batch_size)
            milliseconds = measure_milliseconds(workload)
    found = make_plan(
        model,
        facts,
        limits,
        head=head.value,
        batch_size=batch_size,
        dtype=dtype.value,
        milliseconds=milliseconds,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    show(plan_table(found).rich())
    show("")
    for fact in plan_facts(found):
        show(fact)


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Folder, GGUF file, hub name, or a well-known name as roberta-large.")],
    prove: Annotated[
        bool, typer.Option("--prove", help="Cut a tiny model of the same build in every way, and prove every cut.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the configuration to start from here.")] = None,
    overwrite: Overwrite = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Say whether and how a model is supported: layers, parameters, heads, what would not work, a config to start."""
    from probescale.utils.files import check_output_file, write_text

    if out:
        check_output_file(out, overwrite=overwrite)
    with quick_imports():
        from probescale.report.doctor import doctor_page
        from probescale.report.examination import examine

    found = examine(model, revision, prove=prove)
    if out:
        write_text(out, found.start_from)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        for part in doctor_page(found):
            show(part if isinstance(part, str) else part.rich())
        if out:
            show(f"written to {out}")
    if found.tried and found.tried.failures:
        raise SystemExit(1)


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
        typer.Option(help="Attention heads that every layer keeps, the best by --scores.", show_default="all"),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="scores.json of the whole model, with its heads probed.", show_default=False)
    ] = None,
    encoder_only: Annotated[
        bool, typer.Option("--encoder-only", help="Leave the decoder out (T5, mT5): an encoder alone.")
    ] = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut a model down to the given layers (and heads) and prove the cut; the folder loads with stock transformers."""
    kept = parse_layers(keep)
    decoder = parse_layers(keep_decoder, "--keep-decoder") if keep_decoder is not None else None
    if decoder is not None and encoder_only:
        raise UserError("an encoder alone has no decoder", field="--keep-decoder", hint="leave one of the two out")
    from probescale.utils.files import check_output_folder

    check_output_folder(out, overwrite=overwrite, markers=["probescale.json"])
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
