"""Ctrl-C, a polite kill, a closed terminal, a reader that goes away: a word at most, the right code, nothing left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest
from ruamel.yaml import YAML

from helpers.data import labelled_rows
from probescale.utils.signals import Stopped, stop_on_signals


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(text for text, _ in labelled_rows(50)))
    return path


STOPS = {
    "predict": ("probescale.deploy.predict.run_in_parts", "{texts}", "--out", "{out}"),
    "extract": ("probescale.pipeline.cut.prove_folder", "--keep", "1,2", "--out", "{out}"),
    "export": ("probescale.deploy.formats.onnx.write_graph", "--out", "{out}"),
    "bench": ("probescale.deploy.model_process.ModelProcess.about",),
}


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal as a terminal sends it: tests under `nohup` would ignore one of them."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


@pytest.mark.parametrize("command", STOPS)
def test_a_stopped_command_leaves_nothing(cli, command, number, model_folder, texts, tmp_path, monkeypatch):
    place, *words = STOPS[command]
    monkeypatch.setattr(place, lambda *_, **__: signal.raise_signal(number))
    before = sorted(tmp_path.iterdir())
    found = cli(command, model_folder("bert"), *(word.format(texts=texts, out=tmp_path / "out") for word in words))
    assert found.code == 128 + number
    assert found.err == "stopped; nothing half done is left\n"
    assert sorted(tmp_path.iterdir()) == before


def test_a_program_under_nohup_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_set_for_signals_is_so_again():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped), stop_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_a_stopped_study_takes_its_workers_along(model_folder, task_files, tmp_path):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"k": 2},
        "study": {"strategies": ["top_k"], "seeds": [0, 1], "workers": 2},
    }
    YAML().dump(raw, tmp_path / "study.yaml")
    words = [sys.executable, "-m", "probescale", "study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as study:
        while len(workers := psutil.Process(study.pid).children(recursive=True)) < 2:
            assert study.poll() is None
            time.sleep(0.1)
        study.send_signal(signal.SIGTERM)
        said = study.communicate(timeout=60)[0]
    assert study.returncode == 143
    assert said.splitlines()[-1] == "stopped; the same command goes on from here"
    assert "Traceback" not in said
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("list", "tasks"), ("--help",)])
def test_a_reader_that_goes_away_is_no_fault(words):
    with subprocess.Popen(
        [sys.executable, "-m", "probescale", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as one:
        assert one.stdout
        assert one.stderr
        one.stdout.close()
        assert one.stderr.read() == b""
    assert one.returncode == 1
