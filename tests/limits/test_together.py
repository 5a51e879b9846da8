"""Several processes on one cache: nothing is computed twice, and none disturbs another."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.data import labelled_rows
from probescale.models.loading import load_as_saved
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.tasks.data import Examples
from probescale.utils.cache import FEATURES, enforce_limit
from probescale.utils.ownership import write_manifest

DATA = Examples(tuple(text for text, _ in labelled_rows(40)), None, (0, 1) * 20, ("a", "b"))


def represent_at_barrier(loaded, folder: Path, ready: Any, results: Any) -> None:
    passes: list[int] = []
    loaded.family.layers(loaded.model)[0].register_forward_pre_hook(lambda *_: passes.append(1))
    ready.wait()
    features = represent(loaded, [Request(DATA, "mean")], Store(folder), PassSettings(batch_tokens=30))
    results.put((len(features[0]), len(passes)))


@pytest.mark.slow
def test_four_processes_compute_a_representation_once(model_folder, tmp_path):
    loaded, fork = load_as_saved(str(model_folder("bert"))), multiprocessing.get_context("fork")
    ready, results = fork.Barrier(4), fork.SimpleQueue()
    args = (loaded, tmp_path / "store", ready, results)
    four = [fork.Process(target=represent_at_barrier, args=args) for _ in range(4)]
    for process in four:
        process.start()
    for process in four:
        process.join()
    assert [process.exitcode for process in four] == [0] * 4
    assert sorted(results.get() for _ in four) == [(40, 0)] * 3 + [(40, 40)]


def test_processes_that_enforce_the_limit_at_once_do_not_fail(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path))
    old = time.time() - 10_000
    for number in range(60):
        folder = tmp_path / "features" / f"entry{number}"
        folder.mkdir(parents=True)
        for site in range(5):
            (folder / f"layer-{site}.npy").write_bytes(b"x" * 100)
        write_manifest(folder, FEATURES)
        for file in folder.iterdir():
            os.utime(file, (old, old))
    children = []
    for _ in range(4):
        if (child := os.fork()) == 0:
            try:
                enforce_limit(0)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert not [path for path in (tmp_path / "features").iterdir() if path.is_dir()]
