"""The program itself: its commands are in the modules beside it."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make a pre-trained language model small for one task: probe its layers, keep those worth their parameters, "
    "train it back, and show what was kept and what it cost.",
)
