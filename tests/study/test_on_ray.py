"""The same study on a real Ray with two workers, one of which is killed in the middle of a cell."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time

import psutil
import pytest
from study_settings import settings

from probescale.study.cells import study_of
from probescale.study.run import run_study

pytestmark = pytest.mark.slow


def rows_of(folder):
    with (folder / "results.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def kill_a_worker(folder, killed: list[int]) -> None:
    """The Ray worker that has begun the first cell, as soon as it has."""
    for _ in range(1200):
        if list((folder / "cells").glob("*.partial")):
            workers = [one for one in psutil.Process().children(recursive=True) if "ray::" in " ".join(one.cmdline())]
            busy = [one for one in workers if "_job" in " ".join(one.cmdline())]
            if busy:
                killed.append(busy[0].pid)
                os.kill(busy[0].pid, signal.SIGKILL)
                return
        time.sleep(0.1)


def test_a_killed_worker_costs_nothing_but_time(model_folder, task_files, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason='pip install "probescale[ray]"')
    monkeypatch.setenv("RAY_worker_niceness", "0")  # tests beside this one would leave its workers nothing
    alone = run_study(study_of(settings(model_folder, task_files)), tmp_path / "local")
    killed: list[int] = []
    watcher = threading.Thread(target=kill_a_worker, args=(tmp_path / "ray", killed))
    watcher.start()
    results = run_study(study_of(settings(model_folder, task_files, engine="ray")), tmp_path / "ray")
    watcher.join()
    assert killed
    assert alone.complete
    assert results.complete
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "local")
