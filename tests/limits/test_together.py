"""Several processes on one cache: nothing is computed twice, and none trips over another."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from conftest import labelled_rows
from probescale.housekeeping import keep_within

FOUR = """
import os, sys
import torch
from probescale.models.loading import load_as_saved
from probescale.probing.cache import Path, Store
from probescale.probing.represent import Request, represent
from probescale.tasks.data import Examples
torch.set_num_threads(1)
loaded = load_as_saved(sys.argv[1])
data = Examples(tuple(open(sys.argv[2]).read().splitlines()), None, (0, 1) * 20, ("a", "b"))
ready, go = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        passes = []
        loaded.family.layers(loaded.model)[0].register_forward_pre_hook(lambda *_: passes.append(1))
        os.close(go)
        os.read(ready, 1)  # until all are there
        found = represent(loaded, [Request(data, "mean")], Store(Path(sys.argv[3])), batch_tokens=30)
        os.write(1, f"{len(found[0])} rows, {len(passes)} passes\\n".encode())
        os._exit(0)
os.close(go)
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)))
"""


@pytest.mark.slow
def test_four_processes_compute_a_representation_once(model_folder, tmp_path):
    texts = tmp_path / "texts"
    texts.write_text("\n".join(text for text, _ in labelled_rows(40)))
    words = [sys.executable, "-c", FOUR, str(model_folder("bert")), str(texts), str(tmp_path / "store")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["40 rows, 0 passes"] * 3 + ["40 rows, 40 passes"]


def test_processes_that_keep_the_limit_at_once_do_not_trip(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path))
    old = time.time() - 10_000
    for number in range(60):
        folder = tmp_path / "features" / f"entry{number}"
        folder.mkdir(parents=True)
        for site in range(5):
            (folder / f"layer-{site}.npy").write_bytes(b"x" * 100)
            os.utime(folder / f"layer-{site}.npy", (old, old))
    children = []
    for _ in range(4):
        if (child := os.fork()) == 0:
            try:
                keep_within(0)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert not [path for path in (tmp_path / "features").iterdir() if path.is_dir()]
