"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from probescale.errors import Problems, UserError

if TYPE_CHECKING:
    from probescale.models.architecture import Architecture

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make a pre-trained language model small for one task: probe its layers, keep those worth their parameters, "
    "train it back, and show what was kept and what it cost.",
)

MOST_LAYERS = 10_000  # a range longer than that is a slip of the finger
Config = Annotated[Path, typer.Argument(help="YAML file; configs/ has examples.", show_default=False)]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, as selection.k=4. Repeatable."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def run(
    config: Config,
    set_: Set = [],  # noqa: B006 - typer reads it, nothing changes it
    out: Annotated[Path | None, typer.Option(help="Run folder to write.", show_default="runs/<name of CONFIG>")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Probe, select, cut, fine-tune and measure, as the configuration says."""
    from probescale.checks import load_config
    from probescale.progress import waiting

    folder = out or Path("runs") / config.stem
    settings = load_config(config, set_)
    with waiting("loading libraries"):
        from probescale.pipeline import run as run_pipeline
        from probescale.probing.scores import load_scores
        from probescale.report.tables import comparison_table, layer_table
    try:
        result = run_pipeline(settings, folder, overwrite=overwrite)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise SystemExit(130) from None
    scores = load_scores(folder / "scores.json")
    _print(layer_table(scores, result.subnetwork.kept).rich())
    _print("")
    _print(comparison_table(result).rich())
    _print(f"\nmodel, scores and report: {folder}")


@app.command()
def validate(config: Config, set_: Set = []) -> None:  # noqa: B006
    """Check a configuration and list every problem at once; nothing is computed or fetched."""
    from probescale.checks import load_config

    load_config(config, set_)
    _print(f"{config}: no problems found")


@app.command()
def probe(
    config: Config,
    set_: Set = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Scores file to write.")] = Path("scores.json"),
) -> None:
    """Score every layer for the task; writes scores.json and the figure beside it (SVG, PNG)."""
    from probescale.checks import load_config
    from probescale.files import check_output_file
    from probescale.progress import waiting

    settings = load_config(config, set_)
    check_output_file(out)
    if out.suffix in (".svg", ".png"):
        raise UserError(
            f'"{out}" is where the figure goes', field="--out", hint="give the scores a name like scores.json"
        )
    with waiting("loading libraries"):
        from probescale.pipeline import prepare
        from probescale.probing.probe import probe as probe_layers
        from probescale.provenance import provenance
        from probescale.report.figure import FORMATS, write_figure
        from probescale.report.probes import parts_table, probe_notes, probe_table
        from probescale.report.tables import layer_table
    for kind in FORMATS:
        check_output_file(out.with_suffix(f".{kind}"))
    task, loaded = prepare(settings)
    try:
        scores = probe_layers(loaded, task, settings, provenance(loaded, task, settings.seed))
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise SystemExit(130) from None
    scores.save(out)
    figures = write_figure(scores, out.with_suffix(""))
    for name, found in scores.probes.items():
        for table in (probe_table(name, found), parts_table(name, found)):
            if table:
                _print(table.rich())
                _print("")
    if len(scores.probes) > 1 or scores.contribution == "marginal":
        _print(layer_table(scores).rich())
        _print("")
    for note in probe_notes(scores):
        _print(note)
    _print(f"\nscores: {out}, figure: {figures[0]}, {figures[1]}")


class Credit(str, Enum):
    absolute = "absolute"
    marginal = "marginal"


Budgets = Annotated[
    list[str],
    typer.Option(help="82M parameters, 23% of them, 5x fewer, 12GFLOPs, 150MB, 20ms. Repeatable: all of them hold."),
]
Length = Annotated[int, typer.Option(min=1, help="Tokens of a text, for GFLOPs and ms.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts in a batch, for ms.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read weights from a pickle; only if you trust where they come from.")
]


@app.command()
def select(
    scores: Annotated[Path, typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score.")],
    budget: Budgets = [],  # noqa: B006
    k: Annotated[int | None, typer.Option(help="Number of layers, instead of a budget; with one: at most.")] = None,
    strategy: Annotated[str, typer.Option(help="See `probescale list strategies`.")] = "contiguous",
    weight: Annotated[
        list[str], typer.Option(metavar="PROBE=W", help="w(p,T) of Eq. 1; else as in SCORES. Repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[
        str | None, typer.Option(help="Count from this model's config: for CSV scores, GFLOPs, MB and ms.")
    ] = None,
    classes: Annotated[int, typer.Option(min=2, help="Number of labels of the head, with --model.")] = 2,
    length: Length = 128,
    batch_size: BatchSize = 1,
    out: Annotated[Path | None, typer.Option(help="Also write selection.json here.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Score layers by another measure of SCORES, such as f1 or selectivity.")
    ] = None,
    contribution: Annotated[
        Credit | None, typer.Option(help="Credit a layer with its score, or with what it adds to the one below.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose the layers to keep from probe scores; needs no weights."""
    from probescale.files import check_output_file
    from probescale.probing.scores import load_scores
    from probescale.report.tables import selection_table
    from probescale.selection.budget import parse_budget
    from probescale.selection.select import select as select_layers

    found = load_scores(scores)
    if weight:
        found = found.weighted(_weights(weight))
    found = found.credited(metric, contribution.value if contribution else None)
    limits = parse_budget(budget, k, where="--")
    parameters, costs = found.parameters, None
    if model:
        from probescale.models.costs import costs_of
        from probescale.models.counting import count_from_config

        what = _architecture(model, found.layers)
        parameters = count_from_config(what.config, what.family, classes, field="--model")
        costs = costs_of(
            limits.units,
            what.config,
            what.family,
            parameters,
            classes=classes,
            length=length,
            batch_size=batch_size,
        )
    chosen = select_layers(found.relevance, limits, parameters, strategy, found.provenance, costs)
    if out:
        chosen.save(check_output_file(out))
    if as_json:
        typer.echo(chosen.model_dump_json(indent=2))
    else:
        _print(selection_table(chosen).rich())


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
    length: Length = 128,
    batch_size: BatchSize = 1,
    dtype: Annotated[Dtype, typer.Option(help="How weights are stored, for megabytes.")] = Dtype.float32,
    timed: Annotated[bool, typer.Option("--timed", help="Also measure milliseconds on this machine.")] = False,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Show what every number of layers would cost; needs the config alone, no weights."""
    from probescale.models.facts import known_facts
    from probescale.planning import plan as make_plan
    from probescale.report.plan import plan_facts, plan_table
    from probescale.selection.budget import parse_budget
    from probescale.sources import is_local

    limits = parse_budget(budget, where="--") if budget else None
    timed = timed or (limits is not None and "milliseconds" in limits.units)
    facts = None
    if head is HeadName.none and not timed and not revision and not is_local(model):
        facts = known_facts(model, length)  # answered at once
    milliseconds = None
    if facts is None:
        with _quick_imports():
            from probescale.models.architecture import facts_of, read_architecture
            from probescale.models.costs import milliseconds_of
        what = read_architecture(model, revision)
        facts = facts_of(what, head.value, classes, length)
        if timed:
            milliseconds = milliseconds_of(what.config, what.family, head.value, length, batch_size)
    found = make_plan(
        model,
        facts,
        limits,
        head=head.value,
        length=length,
        batch_size=batch_size,
        dtype=dtype.value,
        milliseconds=milliseconds,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    _print(plan_table(found).rich())
    _print("")
    for fact in plan_facts(found):
        _print(fact)


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Folder, GGUF file, hub name, or a well-known name as roberta-large.")],
    prove: Annotated[
        bool, typer.Option("--prove", help="Cut a tiny model of the same build in every way, and prove every cut.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the configuration to start from here.")] = None,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Say whether and how a model is supported: layers, parameters, heads, what would not work, a config to start."""
    from probescale.files import check_output_file, write_text

    if out:
        check_output_file(out)
    with _quick_imports():
        from probescale.doctor import examine
        from probescale.report.doctor import doctor_page

    found = examine(model, revision, prove=prove)
    if out:
        write_text(out, found.start_from)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    for part in doctor_page(found):
        _print(part if isinstance(part, str) else part.rich())
    if out:
        _print(f"written to {out}")


@app.command()
def extract(
    model: Annotated[str, typer.Argument(help="Local folder, GGUF file, hub name, or pypi: source.")],
    keep: Annotated[str, typer.Option(help="Layers from 1, such as 1,2,5 or 1-4,9; any order, also repeated.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    keep_decoder: Annotated[
        str | None, typer.Option(help="Layers of an encoder-decoder's decoder.", show_default="all")
    ] = None,
    encoder_only: Annotated[
        bool, typer.Option("--encoder-only", help="Leave the decoder out (T5, mT5): an encoder alone.")
    ] = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut a model down to the given layers and prove the cut; the folder loads with stock transformers."""
    kept = _layers(keep)
    decoder = _layers(keep_decoder, "--keep-decoder") if keep_decoder is not None else None
    if decoder is not None and encoder_only:
        raise UserError("an encoder alone has no decoder", field="--keep-decoder", hint="leave one of the two out")
    from probescale.files import check_output_folder

    check_output_folder(out, overwrite=overwrite, markers=["probescale.json"])
    from probescale.progress import waiting

    with waiting("loading libraries"), _quick_imports():
        from probescale.cutting import cut_to_folder
        from probescale.report.cut import cut_lines

    record = cut_to_folder(
        model,
        kept,
        out,
        decoder=decoder,
        encoder_only=encoder_only,
        revision=revision,
        allow_pickle=allow_pickle,
        overwrite=overwrite,
    )
    for line in cut_lines(record, out):
        _print(line)


cache = typer.Typer(no_args_is_help=True, help="What is kept on disk between runs: representations, fetched packages.")
app.add_typer(cache, name="cache")


@cache.command("list")
def cache_list(as_json: Json = False) -> None:
    """Show every entry with its size and age."""
    from probescale.report.listing import cache_table

    table = cache_table()
    _print(table.json() if as_json else table.rich())


@cache.command("clear")
def cache_clear(
    older_than: Annotated[float, typer.Option(min=0, help="Only what was not used for so many days.")] = 0,
) -> None:
    """Remove entries. What another process is computing stays."""
    from probescale.files import size_text
    from probescale.housekeeping import clear

    count, size = clear(older_than)
    _print(f"removed {count} entries, {size_text(size)}")


class Listing(str, Enum):
    tasks = "tasks"
    properties = "properties"
    strategies = "strategies"
    families = "families"
    metrics = "metrics"


@app.command("list")
def list_(what: Annotated[Listing, typer.Argument(help="What to list.", show_default=False)]) -> None:
    """List what can be named in a configuration."""
    from probescale.report.listing import listing

    _print(listing(what.value).rich())


def _print(what: object) -> None:
    from rich.console import Console

    # A file or a pipe has no width of its own: do not fold tables there.
    console = Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False, highlight=False)
    console.print(what, soft_wrap=isinstance(what, str))


def _weights(words: list[str]) -> dict[str, float]:
    weights = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            weights[name] = float(value)
        except ValueError as error:
            raise UserError(f'"{word}" is not PROBE=NUMBER', field="--weight") from error
        if not 0 <= weights[name] < float("inf"):
            raise UserError(f"the weight of {name} is {value}", field="--weight", hint="weights are 0 or more")
    return weights


def _layers(text: str, field: str = "--keep") -> tuple[int, ...]:
    """`1-3,7` -> (1, 2, 3, 7)."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            layers += range(int(first), min(int(last), int(first) + MOST_LAYERS) + 1) if dash else [int(first)]
        except ValueError as error:
            raise UserError(f'"{part}" is not a layer', field=field, hint="write layers like 1,2,5 or 1-4,9") from error
    return tuple(layers)


def _architecture(model: str, layers: int) -> Architecture:
    from probescale.models.architecture import read_architecture

    what = read_architecture(model, field="--model")
    if what.layers != layers:
        raise UserError(f"{model} has {what.layers} layers, the scores {layers}", field="--model")
    return what


@contextmanager
def _quick_imports() -> Iterator[None]:
    """The libraries make half a million objects that stay: looking for garbage among them takes a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _fail(error: UserError) -> NoReturn:
    from rich.console import Console

    console = Console(stderr=True)
    problems = error.problems if isinstance(error, Problems) else [error]
    if len(problems) > 1:
        console.print(f"[bold red]{len(problems)} problems[/]")
    for problem in problems:
        console.print("[bold red]error:[/] ", end="")
        console.print(str(problem), markup=False, emoji=False, highlight=False, soft_wrap=True)
    raise SystemExit(2)


def main() -> None:
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would fill a log file
    try:
        app()
    except UserError as error:
        _fail(error)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(UserError(f"{error.filename}: {error.strerror}", hint="check the path, the permissions and the disk"))
