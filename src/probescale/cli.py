"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from probescale.errors import Problems, UserError

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


@app.command()
def select(
    scores: Annotated[Path, typer.Argument(help="scores.json, or a CSV with the columns layer, probe, score.")],
    budget: Annotated[str | None, typer.Option(help="82M parameters, 23% of them, or 5x fewer.")] = None,
    k: Annotated[int | None, typer.Option(help="Number of layers, instead of a budget.")] = None,
    strategy: Annotated[str, typer.Option(help="See `probescale list strategies`.")] = "contiguous",
    weight: Annotated[
        list[str], typer.Option(metavar="PROBE=W", help="w(p,T) of Eq. 1; else as in SCORES. Repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[
        str | None, typer.Option(help="Count layer sizes from this model's config (for CSV scores).")
    ] = None,
    classes: Annotated[int, typer.Option(min=2, help="Number of labels of the head, with --model.")] = 2,
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
    parameters = _count(model, classes, found.layers) if model else found.parameters
    chosen = select_layers(found.relevance, parse_budget(budget, k, where="--"), parameters, strategy, found.provenance)
    if out:
        chosen.save(check_output_file(out))
    if as_json:
        typer.echo(chosen.model_dump_json(indent=2))
    else:
        _print(selection_table(chosen).rich())


@app.command()
def extract(
    model: Annotated[str, typer.Argument(help="Local folder, hub name, or pypi: source.")],
    keep: Annotated[str, typer.Option(help="Layers from 1, such as 1,2,5 or 1-4,9.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Cut a model down to the given layers; the folder loads with stock transformers."""
    kept = _layers(keep)
    from probescale.files import check_output_folder

    out = check_output_folder(out, overwrite=overwrite, markers=["probescale.json"])
    from probescale.progress import waiting

    with waiting("loading libraries"):
        from probescale.models.loading import load_as_saved
        from probescale.models.surgery import extract as cut
        from probescale.models.surgery import record_of, save_model
        from probescale.provenance import provenance
        from probescale.report.tables import layers_text

    loaded = load_as_saved(model, revision)
    small = cut(loaded, kept)
    record = record_of(loaded, kept, small)
    save_model(small, record | {"provenance": provenance(loaded)}, out, overwrite=overwrite)
    before, after = record["params_original"], record["params"]
    _print(
        f"kept layers {layers_text(kept)} of {loaded.layers}: {after:,} of {before:,} parameters ({after / before:.1%})"
    )
    _print(f"{type(small.model).__name__} in {out}")


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


def _layers(text: str) -> tuple[int, ...]:
    """`1-3,7` -> (1, 2, 3, 7)."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            layers += range(int(first), min(int(last), int(first) + MOST_LAYERS) + 1) if dash else [int(first)]
        except ValueError as error:
            raise UserError(
                f'"{part}" is not a layer', field="--keep", hint="write layers like 1,2,5 or 1-4,9"
            ) from error
    return tuple(layers)


def _count(model: str, classes: int, layers: int):  # noqa: ANN202 - Parameters, imported late
    from probescale.models.counting import count_from_config
    from probescale.models.families import family_of
    from probescale.models.loading import read_config

    config = read_config(model, field="--model")
    family = family_of(config, field="--model")
    if family.layers_in(config) != layers:
        raise UserError(f"{model} has {family.layers_in(config)} layers, the scores {layers}", field="--model")
    return count_from_config(config, family, classes, field="--model")


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
    try:
        app()
    except UserError as error:
        _fail(error)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(UserError(f"{error.filename}: {error.strerror}", hint="check the path, the permissions and the disk"))
