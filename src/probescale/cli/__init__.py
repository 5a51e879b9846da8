"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import io
import os
import sys

from probescale.cli.app import app as app
from probescale.cli.exits import explain_early_end
from probescale.utils.distributed import is_main_process, main_process, serve_main_process, world_size

# isort: off
# --help lists commands in the order of these imports
from probescale.cli import compress as compress
from probescale.cli import run as run
from probescale.cli import smallest as smallest
from probescale.cli import validate as validate
from probescale.cli import probe as probe
from probescale.cli import select as select
from probescale.cli import calibrate as calibrate
from probescale.cli import study as study
from probescale.cli import plan as plan
from probescale.cli import doctor as doctor
from probescale.cli import extract as extract
from probescale.cli import export as export
from probescale.cli import bench as bench
from probescale.cli import predict as predict
from probescale.cli import push as push
from probescale.cli import cache as cache
from probescale.cli import list as list
# isort: on


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, io.StringIO())
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would fill a log file
    # Threads that wait for each other without sleeping slow everything down several times where a core is busy.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if world_size() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would speak of itself in every process
    with explain_early_end():
        if is_main_process():
            with main_process():
                app()
        else:
            serve_main_process()
