"""Processes of `bench`: one that dies is named in one message, and none outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from probescale.deploy import model_process
from probescale.deploy.model_process import ModelProcess
from probescale.errors import UserError
from probescale.utils.subprocesses import python_command

pytestmark = pytest.mark.slow
ANSWER = 'import json; print(json.dumps({"memory": 0, "milliseconds": 1}), flush=True)'
DYING = {
    "before the next request": f"{ANSWER}; sys.stdin.readline(); sys.exit(3)",
    "at once": "sys.exit('no such luck')",
    "in between": f"import time; {ANSWER}; time.sleep(60)",
}


def use(moment: str) -> None:
    with ModelProcess("a-model", 1) as model:
        model.read_facts()
        if moment == "in between":
            model.process.kill()
            model.process.wait()
        model.run(1, 8)


@pytest.mark.parametrize("moment", DYING)
def test_a_process_that_dies_is_named(monkeypatch, moment):
    monkeypatch.setattr(model_process, "SERVE", DYING[moment])
    with pytest.raises(UserError, match="the process that ran a-model died: ") as refused:
        use(moment)
    assert moment != "at once" or "no such luck" in refused.value.message


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot say that a parent ended")
def test_a_stopped_process_ends_with_its_parent():
    child = "from probescale.utils.subprocesses import die_with_parent; die_with_parent(int(sys.argv[1])); print(); "
    start = (
        "import os, time, psutil; from probescale.utils.subprocesses import python_command; "
        f"command = python_command({child + 'import time; time.sleep(60)'!r}, str(os.getpid())); "
        "child = psutil.Popen(command, stdout=-1); "
        "child.stdout.readline(); child.suspend(); print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(python_command(start), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child_pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child_pid) and psutil.Process(child_pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
