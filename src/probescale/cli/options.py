"""What several commands share: options, printing, quick imports."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from probescale.recovery.result import RunResult
    from probescale.utils.files import Record

Config = Annotated[Path, typer.Argument(help="YAML file; configs/ has examples.", show_default=False)]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as selection.k=4. Repeatable."),
]
SavedModel = Annotated[str, typer.Argument(help="Run folder, model folder, folder of an export, or hub name.")]
Rung = Annotated[
    str | None, typer.Option(help="Which model of a ladder, such as 5x.", show_default="the recommended one")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Budgets = Annotated[
    list[str],
    typer.Option(help="82M parameters, 23% of them, 5x fewer, 12GFLOPs, 150MB, 20ms. Repeatable: all of them apply."),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts per batch, for ms.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read weights from a pickle; only if you trust their source.")
]


def show(what: object) -> None:
    """Print a text or table for people."""
    from probescale.utils.progress import PlainConsole

    # A file or a pipe has no width of its own: do not fold tables there.
    console = PlainConsole(width=None if sys.stdout.isatty() else 140)
    console.print(what, soft_wrap=isinstance(what, str))


def show_json(record: Record) -> None:
    """Print a result for programs; it may quote untrusted text."""
    from probescale.utils.sanitize import escape_json

    typer.echo(escape_json(record.model_dump_json(indent=2)))


def finish(result: RunResult, folder: Path) -> None:
    """Print the outcome of a run. A model that did not learn the task ends the command with exit code 1."""
    from probescale.deploy.compressed import Compressed

    Compressed(folder).report()
    if result.failure:
        raise typer.Exit(1)


@contextmanager
def quick_imports() -> Iterator[None]:
    """The libraries create half a million permanent objects: garbage collection among them takes a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
