"""The command line: one thin command per verb. Heavy imports wait until a command needs them."""

from __future__ import annotations

import io
import os
import sys

from probescale.cli.app import app as app
from probescale.cli.exits import RESUMABLE, explain_early_end
from probescale.utils.distributed import exit_at_once, is_main_process, main_process, serve_main_process, world_size

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


BUSY_PER_CENT = 25.0  # of all cores


def spare_busy_cores() -> None:
    """Let waiting threads sleep where other programs need the cores. Has to be called before torch is imported.

    Threads that wait for each other without sleeping make training on free cores up to 1.4 times as fast, and on busy
    ones several times slower (measured with a model of three layers on two cores).
    """
    import psutil

    if psutil.cpu_percent(interval=0.2) > BUSY_PER_CENT:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, io.StringIO())
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries would fill a log file
    if RESUMABLE.intersection(sys.argv[1:2]):
        spare_busy_cores()
    if world_size() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would speak of itself in every process
    with exit_at_once(), explain_early_end():
        if is_main_process():
            with main_process():
                app()
        else:
            from probescale.models.fast_float32 import fast_float32

            with fast_float32():  # as the main process computes
                serve_main_process()
