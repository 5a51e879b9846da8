"""Studies on tiny models: every cell a run, shared work done once, kills and broken cells survived."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from ruamel.yaml import YAML

from helpers.studies import forked_workers, settings
from probescale.study.cells import build_study
from probescale.study.folder import StudyFolder
from probescale.study.report import write_study_report
from probescale.study.results import read_results
from probescale.study.run import run_study

pytestmark = pytest.mark.slow


def rows_of(folder):
    """results.csv without the times."""
    times = ("seconds", "milliseconds", "speedup", "speed_low", "speed_high", "busy")
    with (folder / "results.csv").open() as file:
        return [{key: value for key, value in row.items() if key not in times} for row in csv.DictReader(file)]


@pytest.fixture(scope="module", autouse=True)
def quick_workers(quick_proofs):
    """Run the jobs of studies in forks; tests that start `probescale study` itself have real processes."""
    quick_proofs.start()
    with forked_workers():
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model_folder, task_files):
    folder = tmp_path_factory.mktemp("study") / "out"
    study = build_study(settings(model_folder, task_files))
    return study, folder, run_study(study, folder)


def test_every_cell_is_a_run_and_shared_work_is_done_once(whole):
    study, folder, results = whole
    assert results.complete
    assert {path.name for path in (folder / "cells").iterdir()} == {cell.name for cell in study.cells}
    assert len(list((folder / "shared").iterdir())) == 1
    for cell in study.cells:
        run = folder / "cells" / cell.name
        assert (run / "model" / "model.safetensors").is_file()
        assert not (run / "teacher").exists()
        assert json.loads((run / "selection.json").read_text())["strategy"] == cell.strategy
    rows = rows_of(folder)
    assert [row["strategy"] for row in rows] == ["original", "stitched", "top_k"]
    assert [row["k"] for row in rows] == ["4", "2", "2"]
    assert rows[0]["agreement"] == "1.0"
    measured = [json.loads((folder / "cells" / row["cell"] / "metrics.json").read_text()) for row in rows[1:]]
    assert [float(row["value"]) for row in rows] == [
        measured[0]["original"]["value"], *(one["subnetwork"]["value"] for one in measured)
    ]  # fmt: skip
    assert measured[0]["original"] == measured[1]["original"]  # trained once: its time is the same, too


def test_every_number_of_the_report_is_in_the_results(whole):
    _, folder, results = whole
    write_study_report(StudyFolder(folder), results)
    rows = {row["cell"]: row for row in rows_of(folder)}
    page = (folder / "report.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    shown = [(one["params"], one["total"], one["of_layers"], one["value"], one["retention"], one["agreement"])
             for one in data["rows"]]  # fmt: skip
    names = ("params", "ratio_total", "ratio_layers", "value", "retention", "agreement")
    assert shown == [tuple(json.loads(row[name]) for name in names) for row in rows.values()]
    with (folder / "results.csv").open() as file:
        speeds = [float(row["speedup"]) for row in csv.DictReader(file)]
    assert [one["speed"] for one in data["rows"]] == speeds
    assert len(data["means"]) == len({(row["strategy"], row["budget"]) for row in rows.values()})
    for one in data["means"]:
        own = [row for row in rows.values() if (row["strategy"], row["budget"]) == (one["method"], one["budget"])]
        assert one["seeds"] == len(own)
        for key, name in (("value", "value"), ("params", "params"), ("agreement", "agreement")):
            assert one[key] == pytest.approx(sum(float(row[name]) for row in own) / len(own), abs=0.5e-9)
    assert data["verdict"][1]
    assert data["cards"][0][1] in ("of the accuracy kept", "accuracy")
    for choice in (one for method in data["places"][0]["methods"] for one in method["choices"]):
        kept = " ".join(map(str, choice["kept"]))
        measured = [float(row["value"]) for row in rows.values() if row["layers"] == kept]
        assert choice["measured"] == (pytest.approx(sum(measured) / len(measured)) if measured else None)
    table = (folder / "report.md").read_text()
    assert all(f"{100 * float(row['value']):.2f}" in table for row in rows.values())
    assert all(f"{100 * float(row['value']):.2f}" in (folder / "tables.tex").read_text() for row in rows.values())
    assert (folder / "figures" / "bert-tiny-trade-off.svg").is_file()


@pytest.mark.long
def test_a_study_killed_at_random_moments_ends_with_the_same_results(whole, model_folder, task_files, tmp_path):
    """kill -9 of the study's process: its workers are left to themselves; every other time they die with it."""
    path = tmp_path / "study.yaml"
    YAML().dump(settings(model_folder, task_files), path)
    words = [sys.executable, "-m", "probescale", "study", str(path), "--out", str(tmp_path / "out")]
    rng = random.Random(4)
    for number in range(int(os.environ.get("PROBESCALE_KILLS", "1"))):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(rng.uniform(5, 15))
            for one in psutil.Process(process.pid).children(recursive=True) if number % 2 else ():
                one.kill()
            process.kill()
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "tiny: accuracy" in done.stdout
    assert rows_of(tmp_path / "out") == rows_of(whole[1])


def test_a_broken_cell_is_named_and_the_others_are_told(whole, tmp_path):
    study, finished, _ = whole
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    cell = folder / "cells" / study.cells[0].name
    whole_scores = (cell / "scores.json").read_text()
    (cell / "scores.json").write_text("{")
    assert "scores.json cannot be read" in read_results(StudyFolder(folder), study).failed[study.cells[0].name]
    (cell / "scores.json").write_text(whole_scores)
    broken = cell / "metrics.json"
    broken.write_text(broken.read_text()[:200])
    results = read_results(StudyFolder(folder), study)
    write_study_report(StudyFolder(folder), results)
    for page in ("report.md", "report.html"):
        assert f"{study.cells[0].name} failed" in (folder / page).read_text()
    assert list(results.failed) == [study.cells[0].name]
    assert "metrics.json is damaged" in results.failed[study.cells[0].name]
    assert [row.strategy for row in results.rows] == ["original", "top_k"]


@pytest.mark.long
def test_a_cell_that_fails_costs_itself_alone_and_is_tried_again(whole, tmp_path):
    study, finished, _ = whole
    folder, bad = StudyFolder(tmp_path / "out"), study.cells[0].name
    shutil.copytree(finished, folder.path)
    shutil.rmtree(folder.cell(bad))
    folder.cell(bad).mkdir()
    (folder.cell(bad) / "mine.txt").write_text("not a run")  # which no cell may replace
    results = run_study(study, folder.path)
    assert list(results.failed) == [bad]
    assert "left alone" in results.failed[bad]
    assert [row.strategy for row in results.rows] == ["original", "top_k"]
    shutil.rmtree(folder.cell(bad))
    assert run_study(study, folder.path).complete
    assert rows_of(folder.path) == rows_of(finished)


def is_at_a_job(process: psutil.Process) -> bool:
    try:
        words = " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has just ended
        return False
    return "ray::" in words and "_job" in words


def kill_a_worker(folder, killed: list[int]) -> None:
    """The Ray worker that has begun the first cell, as soon as it has."""
    for _ in range(1200):
        if list((folder / "cells").glob("*.partial")):
            busy = [one for one in psutil.Process().children(recursive=True) if is_at_a_job(one)]
            if busy:
                killed.append(busy[0].pid)
                os.kill(busy[0].pid, signal.SIGKILL)
                return
        time.sleep(0.1)


@pytest.mark.long
def test_on_ray_a_killed_worker_costs_nothing_but_time(whole, model_folder, task_files, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason='pip install "probescale[ray]"')
    monkeypatch.setenv("RAY_worker_niceness", "0")  # tests beside this one would leave its workers nothing
    killed: list[int] = []
    watcher = threading.Thread(target=kill_a_worker, args=(tmp_path / "ray", killed))
    watcher.start()
    results = run_study(build_study(settings(model_folder, task_files, engine="ray")), tmp_path / "ray")
    watcher.join()
    assert killed
    assert results.complete
    assert rows_of(tmp_path / "ray") == rows_of(whole[1])
