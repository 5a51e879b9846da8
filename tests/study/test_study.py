"""Studies on tiny models: every cell a run, shared work done once, interruptions and crashes survived."""

from __future__ import annotations

import csv

import pytest

from probescale.study.cells import study_of
from probescale.study.run import run_study

WHAT = {"strategies": ["stitched", "bottom_k"], "budgets": ["k=1", "k=2"], "seeds": [0, 1], "workers": 2}


def settings(model_folder, task_files, **study) -> dict:
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},
        "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16},
        "study": {**WHAT, **study},
    }


def rows_of(folder):
    """results.csv without the times."""
    with (folder / "results.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model_folder, task_files):
    folder = tmp_path_factory.mktemp("study") / "out"
    study = study_of(settings(model_folder, task_files))
    return study, folder, run_study(study, folder)


@pytest.mark.slow
def test_every_cell_is_a_run_and_shared_work_is_done_once(whole):
    study, folder, results = whole
    assert results.complete
    assert len(study.cells) == 8
    assert {path.name for path in (folder / "cells").iterdir()} == {cell.name for cell in study.cells}
    assert len(list((folder / "shared").iterdir())) == 2  # a ground for each seed
    for cell in study.cells:
        run = folder / "cells" / cell.name
        assert (run / "model" / "model.safetensors").is_file()
        assert not (run / "teacher").exists()
    rows = rows_of(folder)
    assert len(rows) == 10
    assert [row["strategy"] for row in rows].count("original") == 2
    assert {row["k"] for row in rows if row["strategy"] == "stitched"} == {"1", "2"}
