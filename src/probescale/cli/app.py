"""The typer application that the command modules add to."""

from __future__ import annotations

from importlib.metadata import version

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make a pre-trained language model small for one task: probe its layers, keep those worth their parameters, "
    "train it back, and show what was kept and what it cost.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"probescale {version('probescale')}")
        raise typer.Exit


_VERSION = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Print the version.")


@app.callback()
def _global_options(_version: bool = _VERSION) -> None:
    """Accept the options that belong to no command."""
