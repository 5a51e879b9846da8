"""Ctrl-C, kill, a closed terminal, a closed pipe: one line at most, the right exit code, nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from ruamel.yaml import YAML

from helpers.data import labelled_rows
from helpers.sweeps import sweep
from probescale.utils.signals import SECONDS_BETWEEN, Stopped, stop_on_signals


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(text for text, _ in labelled_rows(50)))
    return path


STOPS = {
    "predict": ("probescale.deploy.predict.compute_logits", "{texts}", "--out", "{out}"),
    "extract": ("probescale.pipeline.cut.prove_folder", "--keep", "1,2", "--out", "{out}"),
    "export": ("probescale.deploy.formats.onnx.write_graph", "--out", "{out}"),
    "bench": ("probescale.deploy.model_process.ModelProcess.read_facts",),
}


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal as a terminal sends it; under `nohup`, tests would ignore one of them."""
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
    assert found.err == "stopped; nothing unfinished is left\n"
    assert sorted(tmp_path.iterdir()) == before


def test_a_program_under_nohup_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped), stop_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


class Dying:
    """A signal arrives while it is deleted: Python drops what a `__del__` raises."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def lose_in_del() -> None:
    Dying()


def lose_in_handler() -> None:
    with suppress(BaseException):  # as some libraries do
        signal.raise_signal(signal.SIGTERM)


LOSING = [lose_in_del, lose_in_handler]


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("lose", LOSING)
def test_a_stop_that_gets_lost_is_raised_again(lose, capsys):
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM), sys.unraisablehook

    def work() -> None:
        lose()
        wait(60)
        pytest.fail("it was not stopped")

    with pytest.raises(Stopped), stop_on_signals():
        work()
    assert capsys.readouterr().err == ""
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


@pytest.mark.parametrize("lose", LOSING)
def test_a_stop_that_gets_lost_at_the_end(lose):
    with pytest.raises(Stopped) as stopped, stop_on_signals():
        lose()
    assert stopped.value.code == 143


def test_a_stop_that_a_library_turns_into_another_error():
    def convert() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            raise RuntimeError("the callback failed") from None

    with pytest.raises(Stopped) as stopped, stop_on_signals():
        convert()
    assert stopped.value.code == 143


@pytest.fixture
def heeded():
    """Ctrl-C is not ignored, as it is by a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_cleaning_up_is_not_interrupted_but_by_ctrl_c(heeded):
    done = []

    def clean_up() -> None:
        try:
            raise KeyError
        except KeyError:
            wait(5 * SECONDS_BETWEEN)
        done.append(signal.getsignal(signal.SIGINT))

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            clean_up()

    with pytest.raises(Stopped), stop_on_signals():
        work()
    assert done == [signal.SIG_DFL]


@pytest.mark.long
def test_a_stopped_study_ends_its_workers(model_folder, task_files, tmp_path):
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
        output = study.communicate(timeout=60)[0]
    assert study.returncode == 143
    assert output.splitlines()[-1] == "stopped; run the same command to resume"
    assert "Traceback" not in output
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
@pytest.mark.parametrize("words", sweep([("list", "tasks"), ("--help",)], always=[("--help",)]))
def test_a_closed_pipe_is_not_an_error(words):
    with subprocess.Popen(
        [sys.executable, "-m", "probescale", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
