"""A run stopped by signals at random moments: the right exit code within seconds, and the same output in the end.

PROBESCALE_SIGNALS=200 sends that many.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.killing import read_contents
from probescale.cli.exits import explain_early_end
from probescale.pipeline import run as pipeline
from probescale.pipeline.validate import check
from probescale.utils.signals import SIGNALS

COUNT = int(os.environ.get("PROBESCALE_SIGNALS", "3"))
WITHIN = 60  # seconds; idle machines take one or two, and this one may be busy


def run_stopped(work: Callable[[], object], log: Path, stop: tuple[float, int] | None = None) -> tuple[int, float]:
    """Run work in a fork, which gets a signal after some seconds: its exit code, and how long it took to end."""
    ready, tell = os.pipe()
    if not (child := os.fork()):
        code = 1
        try:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(descriptor, stream)
            sys.argv = ["probescale", "run"]
            with explain_early_end():
                os.write(tell, b"x")
                work()
            code = 0
        except SystemExit as early:
            code = int(early.code or 0)
        except BaseException:  # into the log, which the test looks at
            traceback.print_exc()
        finally:
            os._exit(code)
    os.read(ready, 1)
    for end in (ready, tell):
        os.close(end)
    if stop:
        time.sleep(stop[0])
        os.kill(child, stop[1])
    begun = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_a_run_stopped_at_random_moments_resumes_to_the_same_output(model_folder, task_files, tmp_path, quick_proofs):
    settings = check(
        {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
            "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
            "selection": {"budget": "60%"},
            "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16},
        }
    )
    quick_proofs.start()  # for all forks
    log, rng = tmp_path / "log", random.Random(14)

    def work(name: str) -> Callable[[], object]:
        def run() -> None:
            os.environ["PROBESCALE_CACHE"] = str(tmp_path / f"{name}-cache")
            pipeline.run(settings, tmp_path / name)

        return run

    code, seconds = run_stopped(work("undisturbed"), log)
    assert code == 0, log.read_text()
    complete, sent, name = read_contents(tmp_path / "undisturbed"), 0, ""
    while sent < COUNT:
        name, code = f"stopped-{sent}", -1
        while code != 0 and sent < COUNT:
            number, sent = rng.choice(SIGNALS), sent + 1
            code, taken = run_stopped(work(name), log, (rng.uniform(0, seconds), number))
            assert code in (0, 128 + number), log.read_text()
            assert taken < WITHIN or code == 0
            assert "Traceback" not in log.read_text()
        if code != 0:
            assert run_stopped(work(name), log)[0] == 0, log.read_text()
        assert read_contents(tmp_path / name) == complete
    print(f"{sent} signals")
