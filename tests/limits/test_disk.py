"""A run without enough disk or open files ends with one message; with enough, the same command resumes it."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from helpers.limits import limited


@pytest.fixture
def config(model_folder, task_files, tmp_path, monkeypatch):
    """A tiny version of the demo, with its own cache."""
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path / "cache"))
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2},
        "compare": ["top_k"],
        "shrink": "none",
        "recovery": {"epochs": 4, "learning_rate": 3e-3, "batch_size": 8, "states": 0.1, "augment": 0},
    }
    path = tmp_path / "config.yaml"
    YAML().dump(raw, path)
    return path


def stable(run: Path) -> dict:
    """Results that do not depend on time."""
    metrics = json.loads((run / "metrics.json").read_text())
    names = ("kept", "value", "losses", "retention")
    return {model: {name: metrics[model][name] for name in names} for model in ("original", "subnetwork")}


@pytest.mark.long
def test_a_run_resumes_from_wherever_the_disk_was_full(cli, config, tmp_path):
    """Representations, scores, the teacher's states, its weights: each time more fits."""
    out, seen = tmp_path / "out", set()
    for size in (6_000, 30_000, 60_000, 130_000):
        with limited(resource.RLIMIT_FSIZE, size):
            found = cli("run", config, "--out", out)
        assert found.code == 1, found.err
        assert found.err.count("error:") == 1
        assert "then run the same command to resume" in found.err
        assert "Traceback" not in found.err
        assert str(tmp_path) in found.err
        assert (tmp_path / "out.partial").is_dir()
        assert not out.exists()
        seen.add(found.err.split("error: ")[1].splitlines()[0])
    assert len(seen) >= 3, "the run came further each time"
    assert cli("run", config, "--out", out).code == 0
    assert not list(tmp_path.glob("*.partial"))
    assert cli("run", config, "--out", tmp_path / "whole").code == 0
    assert stable(out) == stable(tmp_path / "whole")


def test_probing_resumes_when_more_files_may_be_open(cli, config, tmp_path):
    spare = os.open(tmp_path, os.O_RDONLY)  # the lowest free descriptor
    os.close(spare)
    with limited(resource.RLIMIT_NOFILE, spare + 4):
        found = cli("probe", config, "--out", tmp_path / "scores.json")
    assert found.code == 1, found.err
    assert "too many" in found.err.lower()
    assert "raise the limit of open files (ulimit -n)" in found.err
    assert not (tmp_path / "scores.json").exists()
    assert cli("probe", config, "--out", tmp_path / "scores.json").code == 0


def test_a_cut_that_does_not_fit_leaves_nothing(cli, model_folder, tmp_path):
    with limited(resource.RLIMIT_FSIZE, 50_000):
        found = cli("extract", model_folder("bert"), "--keep", "1,2", "--out", tmp_path / "cut")
    assert found.code == 1
    assert f"{tmp_path / 'cut'}: a file would exceed the size limit" in found.err
    assert "then run the same command again" in found.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_works_without_a_writable_cache(cli, config, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROBESCALE_CACHE", str(tmp_path / "file" / "cache"))
    found = cli("probe", config, "--out", tmp_path / "scores.json")
    assert found.code == 0, found.err
    assert found.err.count("representations are not kept between commands") == 1
    assert json.loads((tmp_path / "scores.json").read_text())["layers"] == 4


def test_an_output_that_cannot_be_written_is_refused_before_the_work(cli, config, tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = cli("run", config, "--out", tmp_path / "file" / "out")
    assert found.code == 2
    assert f'--out: nothing can be written in "{tmp_path / "file"}"' in found.err
