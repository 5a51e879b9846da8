"""list: the names that configurations and options can use."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from probescale.cli.app import app
from probescale.cli.options import quick_imports, show


class Listing(str, Enum):
    """What can be listed."""

    tasks = "tasks"
    properties = "properties"
    probes = "probes"
    strategies = "strategies"
    families = "families"
    metrics = "metrics"
    exporters = "exporters"


@app.command("list")
def list_(what: Annotated[Listing, typer.Argument(help="What to list.", show_default=False)]) -> None:
    """List the names that configurations and options can use: tasks, properties, probes, strategies, ..."""
    if what is Listing.exporters:
        with quick_imports():
            from probescale.deploy.tables import exporters_table
        show(exporters_table().rich())
        return
    from probescale.report.listing import listing_table

    show(listing_table(what.value).rich())
