"""Fuzz a resumed run: any of its records is damaged in a way that its seal does not tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers.damage import run_until
from helpers.fuzzing import RNG, damaged, damaged_json, fuzz, result_or_error
from probescale.pipeline import run as pipeline
from probescale.pipeline.seals import SEALS, seal
from probescale.pipeline.validate import check

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def config(model_folder, task_files):
    return check(
        {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
            "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
            "selection": {"budget": "60%", "strategy": "stitched"},
            "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16, "augment": 0},
        }
    )


@pytest.fixture(scope="module")
def unfinished(config, tmp_path_factory) -> Path:
    """The work folder of a run that had only its outputs to write."""
    return run_until(pipeline, "write_outputs", 1, config, tmp_path_factory.mktemp("unfinished") / "out")


@fuzz("resumed runs", 4, rng=RNG)
def test_a_resumed_run_with_a_damaged_record(config, unfinished, tmp_path_factory, rng):
    folder = tmp_path_factory.mktemp("resumed")
    work = Path(shutil.copytree(unfinished, folder / "out.partial"))
    files = [path for path in sorted(work.rglob("*")) if path.suffix in (".json", ".yaml", ".txt", ".npy")]
    path = rng.choice([path for path in files if not path.is_relative_to(work / SEALS)])
    sound = path.read_bytes()
    path.write_bytes(damaged_json(rng, json.loads(sound)) if path.suffix == ".json" else damaged(rng, sound))
    seal(work, path)  # as if it had been written so
    try:
        result_or_error(lambda: pipeline.run(config, folder / "out"))
    finally:
        shutil.rmtree(folder)
