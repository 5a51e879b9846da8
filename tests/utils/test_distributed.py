"""Two real processes on one command give the same scores and the same training as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from probescale.pipeline.run import run
from probescale.pipeline.validate import check

pytestmark = pytest.mark.slow


def launch(*command: object) -> subprocess.CompletedProcess[str]:
    # --standalone finds a free port; a fixed one may be in use by another test.
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    full = [*start, "--module", "probescale", *map(str, command)]
    return subprocess.run(full, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def both(tmp_path_factory, model_folder, task_files):
    """Run folders of one process and of two, each with its own cache."""
    folder = tmp_path_factory.mktemp("processes")
    raw = {
        "model": {"source": str(model_folder("roberta")), "max_length": 32},
        "task": {
            "name": "tiny",
            "train": str(task_files.train),
            "dev": str(task_files.dev),
        },
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01], "batch_tokens": 256},
        "relevance": {"metric": "information"},
        "selection": {"k": 2},
        "compare": [],
        "shrink": "none",
        "recovery": {
            "epochs": 5,
            "learning_rate": 3e-3,
            "batch_size": 8,
            "dropout": 0,
            "states": 0.1,
            "augment": 0,
        },
    }
    with (folder / "config.yaml").open("w") as file:
        YAML().dump(raw, file)
    alone, together = folder / "alone", folder / "together"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROBESCALE_CACHE", str(folder / "cache-of-one"))
        run(check(raw), alone)
        patch.setenv("PROBESCALE_CACHE", str(folder / "cache-of-two"))
        done = launch("run", folder / "config.yaml", "--out", together)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model, scores and report") == 1  # only the main process prints
    return [alone, together]


@pytest.mark.long
def test_scores_are_the_same(both):
    one, two = (json.loads((run / "scores.json").read_text()) for run in both)
    assert one["probes"].keys() == two["probes"].keys()
    for name, probe in one["probes"].items():
        assert probe["scores"] == pytest.approx(two["probes"][name]["scores"], abs=1e-4)
    one, two = (json.loads((run / "selection.json").read_text()) for run in both)
    assert one == two | {"provenance": one["provenance"]}  # the command


@pytest.mark.long
def test_training_is_the_same(both):
    """Both see the same batches; only the order of additions differs."""
    one, two = (json.loads((run / "metrics.json").read_text()) for run in both)
    for model in ("original", "subnetwork"):
        assert len(one[model]["losses"]) == 5
        assert one[model]["losses"] == pytest.approx(two[model]["losses"], abs=2e-2)
        assert one[model]["losses"][-1] < 0.8 * one[model]["losses"][0]
        assert one[model]["value"] == pytest.approx(two[model]["value"], abs=0.051)  # two of 40 rows


@pytest.mark.long
def test_an_error_ends_all_processes_with_one_message(tmp_path):
    done = launch("run", tmp_path / "nothing.yaml")
    assert done.returncode != 0
    assert done.stderr.count("nothing.yaml") == 1


@pytest.mark.long
def test_a_study_starts_its_own_processes(both):
    done = launch("study", both[0].parent / "config.yaml")
    assert done.returncode != 0
    assert done.stderr.count("study.workers") == 1
