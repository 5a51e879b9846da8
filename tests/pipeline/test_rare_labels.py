"""A label that one row in twenty has: the run says what it measures, weighs its rows, and learns it."""

from __future__ import annotations

import pytest

from helpers.data import labelled_rows, write_csv
from probescale.pipeline.run import run
from probescale.pipeline.validate import check
from probescale.report.tables import comparison_table
from probescale.utils.yaml_files import read_yaml

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_rare_label(tmp_path, model_folder, capsys):
    rows = labelled_rows(1000)
    good, bad = ([row for row in rows if row[1] == label] for label in ("positive", "negative"))
    train = write_csv(tmp_path / "train.csv", [*good[:285], *bad[:15]])
    dev = write_csv(tmp_path / "dev.csv", [*good[285:380], *bad[15:20]])
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"train": str(train), "dev": str(dev), "labels": {"positive": "ham", "negative": "spam"}},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"strategy": "uniform_k", "k": 2},
        "shrink": "none",
        "recovery": {"epochs": 12, "learning_rate": 1e-3, "batch_size": 16, "augment": 0},
    }
    result = run(check(raw), tmp_path / "out")
    said = " ".join(capsys.readouterr().err.split())
    assert 'note: 95.0% of the rows have the label "ham", and 5 rows of dev another' in said
    settled = check(read_yaml(tmp_path / "out" / "config.yaml"))
    assert settled.recovery.class_weights == "square_root"
    assert (result.metric, result.positive, settled.task.metric, settled.task.positive) == ("f1", "spam", "f1", "spam")
    assert "square root class weights" in result.recipe
    assert 'f1 of "spam" on dev' in comparison_table(result).title
    assert result.failure is None
    assert min(result.original.value, result.subnetwork.value) > 0.5
