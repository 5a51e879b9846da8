"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import io
import os
import sys

from probescale.cli.app import app as app
from probescale.cli.ending import told
from probescale.utils.distributed import is_main_process, main_process, serve_main_process, world_size

# isort: off
from probescale.cli import work  # --help lists commands in the order of these imports
from probescale.cli import studies
from probescale.cli import models
from probescale.cli import shipping
from probescale.cli import shelves
# isort: on

__all__ = ["app", "main", "models", "shelves", "shipping", "studies", "work"]


def main() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, io.StringIO())
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would fill a log file
    if world_size() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would speak of itself in every process
    with told():
        if is_main_process():
            with main_process():
                app()
        else:
            serve_main_process()
