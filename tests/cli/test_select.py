"""`select` for several tasks and with structure, and `calibrate`: results and refused input."""

from __future__ import annotations

import json

import pytest


def scores_csv(path, **probes):
    """Write a CSV file of scores from one list per probe."""
    rows = [f"{layer},{name},{score}" for name, row in probes.items() for layer, score in enumerate(row, 1)]
    path.write_text("\n".join(["layer,probe,score", *rows]) + "\n")
    return path


@pytest.fixture
def two_tasks(tmp_path):
    """Scores of two tasks: one is best in the first layers, the other in the last."""
    first = scores_csv(tmp_path / "sentiment.csv", p=[0.9, 0.8, 0.2, 0.1, 0.1, 0.1])
    return first, scores_csv(tmp_path / "topic.csv", p=[0.1, 0.1, 0.1, 0.2, 0.8, 0.85])


def kept_by(cli, *arguments):
    found = cli("select", *arguments, "--json")
    assert found.code == 0, found.err
    return json.loads(found.out)["kept"]


def test_one_selection_for_several_tasks(cli, two_tasks):
    options = ["--k", 2, "--strategy", "best_scores"]
    assert kept_by(cli, two_tasks[0], *options) == [1, 2]
    assert kept_by(cli, two_tasks[1], *options) == [5, 6]
    assert kept_by(cli, *two_tasks, *options) == [1, 6]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=9") == [5, 6]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=1", "--task-weight", "sentiment=9") == [1, 2]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=0") == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--task-weight", "topics=1"], 'no SCORES are of the task "topics". Did you mean "topic"'),
        (["--task-weight", "weather=1"], "use one of: sentiment, topic"),
        (["--task-weight", "topic"], '"topic" is not TASK=NUMBER'),
        (["--task-weight", "topic=-1"], "weights are 0 or more"),
        (["--task-weight", "topic=nan"], "weights are 0 or more"),
        (["--task-weight", "topic=0", "--task-weight", "sentiment=0"], "all task weights are zero"),
    ],
)
def test_wrong_task_weights(cli, two_tasks, tmp_path, options, says):
    found = cli("select", *two_tasks, "--k", 2, *options, "--out", tmp_path / "out.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out.json").exists()


def test_tasks_of_different_models(cli, two_tasks, tmp_path):
    found = cli("select", *two_tasks, scores_csv(tmp_path / "other.csv", p=[0.1, 0.2, 0.3]), "--k", 2)
    assert found.code == 2
    assert "models with 6, 6, 3 layers" in found.err


def test_structure_on_the_command_line(cli, two_tasks):
    options = [two_tasks[0], "--k", 3, "--strategy", "best_scores"]
    assert kept_by(cli, *options) == [1, 2, 3]
    assert kept_by(cli, *options, "--keep", "6") == [1, 2, 6]
    assert kept_by(cli, *options, "--keep", "5-6") == [1, 5, 6]
    assert kept_by(cli, *options, "--gap", 2) == [1, 3, 5]
    assert kept_by(cli, *options, "--keep", "6", "--gap", 2) == [1, 3, 6]
    assert kept_by(cli, *options, "--neighbours", "--keep", "4") == [2, 3, 4]
    assert kept_by(cli, two_tasks[1], "--k", 2, "--strategy", "bottom_k", "--neighbours", "--keep", "6") == [5, 6]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "7"], "--keep: layer 7 does not exist"),
        (["--keep", "a"], '--keep: "a" is not a layer'),
        (["--keep", "1,2,3"], "--k: k=2, but the required structure allows 3 to 6 layers"),
        (["--keep", "1,2", "--gap", "2"], "--gap: layers 1, 2 are closer than the gap of 2"),
        (["--gap", "6"], "--k: k=2, but the required structure allows 1 to 1 layers"),
        (["--gap", "2", "--neighbours"], "leave --gap or --neighbours out"),
        (["--gap", "0"], "--gap"),
        (["--strategy", "contiguous", "--gap", "2"], "use a gap of 1"),
        (["--strategy", "stitched"], "uses probes of subnetworks"),
        (["--strategy", "angular"], "how texts flow"),
    ],
)
def test_impossible_structures_are_refused(cli, two_tasks, tmp_path, options, says):
    strategy = [] if "--strategy" in options else ["--strategy", "best_scores"]
    found = cli("select", two_tasks[0], "--k", 2, *strategy, *options, "--out", tmp_path / "out.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out.json").exists()


@pytest.fixture
def calibration(tmp_path):
    """Scores of two probes, and measurements that are their sum with the weights 0.8 and 0.2."""
    scores = scores_csv(tmp_path / "scores.csv", pos=[0.0, 1.0, 0.0], ner=[1.0, 0.0, 2.0])
    (tmp_path / "measured.csv").write_text('layers,value\n1,0.4\n2,0.7\n3,0.5\n"1,2",0.8\n1-3,1.0\n')
    return scores, tmp_path / "measured.csv"


def test_calibrate_learns_weights_and_writes_scores_that_carry_them(cli, calibration, tmp_path):
    found = cli("calibrate", *calibration, "--out", tmp_path / "new.json")
    assert found.code == 0, found.err
    assert "5 measured" in found.out
    assert "0.8000" in found.out
    assert "0.2000" in found.out
    written = json.loads((tmp_path / "new.json").read_text())
    assert {n: p["weight"] for n, p in written["probes"].items()} == pytest.approx({"pos": 0.8, "ner": 0.2})
    assert written["relevance"] == pytest.approx([0.2, 0.8, 0.4])
    learned = json.loads(cli("calibrate", *calibration, "--json").out)
    assert learned["weights"] == pytest.approx({"pos": 0.8, "ner": 0.2})
    assert learned["error"] == pytest.approx(0, abs=1e-9)
    assert kept_by(cli, tmp_path / "new.json", "--k", 1, "--strategy", "best_scores") == [2]
    for said in (found.out, learned["fitted_to"], cli("select", tmp_path / "new.json", "--k", 1).out):
        assert "the values of a CSV file" in " ".join(said.split()), "who uses the weights hears where they come from"
    assert "fitted" not in cli("select", tmp_path / "new.json", "--k", 1, "--strategy", "top_k").out
    assert "fitted" not in cli("select", tmp_path / "new.json", "--k", 1, "--weight", "pos=1").out
    assert kept_by(cli, calibration[0], "--k", 1, "--strategy", "best_scores") == [3], "with equal weights"


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        (None, "neither a file nor a folder"),
        ("", "no column layers, value"),
        ("layers,value\n", "is empty"),
        ("layers,value\n1,0.4\n", "too few to learn from"),
        ("layers,value\n1,0.4\n2,0.5\n3,0.1\n9,0.5\n", "not layers of this model"),
        ("layers,value\n1,0.4\n2,high\n3,0.1\n", "give a finite number"),
        ("layers,value\n1,2,0.4\n", "put layers in quotes"),
        ("layers,value\n2-1,0.4\n", "runs backwards"),
    ],
)
def test_calibrate_refuses_bad_input(cli, calibration, tmp_path, measured, says):
    path = tmp_path / "wrong.csv"
    if measured is not None:
        path.write_text(measured)
    found = cli("calibrate", calibration[0], path, "--out", tmp_path / "new.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "new.json").exists()


def test_calibrate_without_scores(cli, calibration, tmp_path):
    found = cli("calibrate", tmp_path / "none.json", calibration[1])
    assert found.code == 2
    assert "SCORES" in found.err
