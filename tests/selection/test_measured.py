"""Measured subnetworks, read from runs and CSV files."""

from __future__ import annotations

import json
import math

import pytest

from probescale.errors import UserError
from probescale.selection.measured import describe_measured, load_measured


def write_run(folder, subnetwork=((3, 4), 0.8), compared=None, **changes):
    """A run folder whose metrics.json has the fields that are read."""
    ends = {"original": (tuple(range(1, 5)), 0.9), "subnetwork": subnetwork}
    parts = {name: {"kept": kept, "value": value} for name, (kept, value) in ends.items()}
    others = {name: {"kept": kept, "value": value} for name, (kept, value) in (compared or {}).items()}
    result = {"task": "sst2", "metric": "accuracy", "split": "dev", **parts, "compared": others, **changes}
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps(result))
    return folder


def write_csv(path, text):
    path.write_text(text)
    return path


def test_runs_and_csv_files_are_read_together(tmp_path):
    one = write_run(tmp_path / "one", compared={"top_k": ((3, 4), 0.8), "uniform_k": ((2, 4), 0.7)})
    two = write_run(tmp_path / "two", subnetwork=((1, 2), 0.5))
    table = write_csv(tmp_path / "more.csv", 'layers,value,note\n1-2,0.7,x\n"1,3-4",0.75,y\n"4,1",0.6,z\n')
    assert load_measured([one, two / "metrics.json", table]) == pytest.approx(
        {(1, 2, 3, 4): 0.9, (3, 4): 0.8, (2, 4): 0.7, (1, 2): 0.6, (1, 3, 4): 0.75, (1, 4): 0.6}
    )


def test_what_was_measured_is_named(tmp_path):
    table = write_csv(tmp_path / "more.csv", "layers,value\n1-2,0.7\n")
    run = write_run(tmp_path / "one")
    assert describe_measured([table, run]) == "accuracy on sst2 (dev) with 4 layers"
    assert describe_measured([table]) == "the values of a CSV file"


def test_a_subset_that_two_strategies_chose_counts_once_per_run(tmp_path):
    one = write_run(tmp_path / "one", compared={"top_k": ((3, 4), 0.8)})
    two = write_run(tmp_path / "two", subnetwork=((3, 4), 0.6))
    assert load_measured([one, two])[3, 4] == pytest.approx(0.7)


@pytest.mark.parametrize(
    "changes", [{"task": "qnli"}, {"metric": "matthews"}, {"split": "test"}, {"original": {"kept": [1], "value": 0.5}}]
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path, changes):
    with pytest.raises(UserError, match=r"two.*but.*one") as caught:
        load_measured([write_run(tmp_path / "one"), write_run(tmp_path / "two", **changes)])
    assert caught.value.field == "MEASURED"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "layer,value\n1,0.5\n", "no column layers"),
        ("a.csv", "", "no column layers, value"),
        ("a.csv", "layers,value\n", "it has no rows"),
        ("a.csv", "layers,value\n1-4,high\n", 'line 2: the value is "high"'),
        ("a.csv", "layers,value\n1-4,\n", 'line 2: the value is ""'),
        ("a.csv", "layers,value\n1-4\n", 'line 2: the value is ""'),
        ("a.csv", "layers,value\n1-4,0.5\n1-2,nan\n", 'line 3: the value is "nan"'),
        ("a.csv", "layers,value\n1,3,5-7,0.5\n", 'put layers in quotes: "1,3,5-7"'),
        ("a.csv", "layers,value\nfour,0.5\n", 'line 2: "four" is not a layer'),
        ("a.csv", "layers,value\n,0.5\n", 'line 2: "" is not a layer'),
        ("a.csv", "layers,value\n4-1,0.5\n", 'line 2: "4-1" runs backwards'),
        ("a.csv", "layers,value\n0-3,0.5\n", "layers count from 1"),
        ("a.csv", 'layers,value\n"1,1-2",0.5\n', "each is listed once"),
        ("metrics.json", "{", "is not JSON"),
        ("metrics.json", "[" * 100_000, "is not JSON"),
        ("metrics.json", "[]", "is not the result of a run"),
        ("metrics.json", '{"task": "sst2"}', "is not the result of a run: metric"),
        ("table.txt", "layers,value\n1,0.5\n", "name a CSV file .csv"),
    ],
)
def test_malformed_files_are_refused(tmp_path, name, text, says):
    with pytest.raises(UserError) as caught:
        load_measured([write_csv(tmp_path / name, text)])
    assert caught.value.field == "MEASURED"
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_run_with_a_value_that_is_not_a_number_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"subnetwork\.value"):
        load_measured([write_run(tmp_path / "one", subnetwork=((1, 2), math.nan))])


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv", "x" * 300])
def test_paths_that_do_not_exist_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="neither a file nor a folder"):
        load_measured([tmp_path / name])


def test_binary_files_are_refused(tmp_path):
    for name in ("a.csv", "metrics.json"):
        (tmp_path / name).write_bytes(b"layers,value\n\xff\xfe,1\n")
        with pytest.raises(UserError, match=r"cannot be read|is not JSON"):
            load_measured([tmp_path / name])
