"""cache: what is kept on disk between runs."""

from __future__ import annotations

from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import Json, show

cache = typer.Typer(
    no_args_is_help=True, help="What is kept on disk between runs: representations, downloaded packages."
)
app.add_typer(cache, name="cache")


@cache.command("list")
def cache_list(as_json: Json = False) -> None:
    """Show every entry with its size and age."""
    from probescale.report.listing import cache_table

    table = cache_table()
    show(table.json() if as_json else table.rich())


@cache.command("clear")
def cache_clear(
    older_than: Annotated[float, typer.Option(min=0, help="Only entries that were not used for this many days.")] = 0,
) -> None:
    """Remove entries, except those that another process is computing."""
    from probescale.utils.cache import remove_entries
    from probescale.utils.files import format_size

    count, size = remove_entries(older_than)
    show(f"removed {count} entries, {format_size(size)}")
