"""Proofs in forks of one process that has the stock libraries loaded: as new as a fresh one, and much faster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from probescale.models.proof import child, comparison

# A process that has stock libraries loaded and nothing of ours; every proof gets a fork of it, as new as a fresh one.
STOCK = """
import os, sys, traceback
import safetensors.torch, torch, transformers
transformers.AutoTokenizer, transformers.BertForSequenceClassification, transformers.PreTrainedTokenizerFast
for line in sys.stdin:
    scratch, start, program = line.rstrip().split(chr(9))
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(scratch)
    sys.argv = ["-c", program, "jobs.json"]
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
    try:
        exec(start, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


@contextmanager
def forked_proofs() -> Iterator[None]:
    """Most of a proof's time is the import of transformers: tests of the command line pay for it, others need not."""
    server: subprocess.Popen[str] | None = None

    def run_forked(scratch: str) -> subprocess.CompletedProcess[str]:
        nonlocal server
        server = server or subprocess.Popen([sys.executable, "-c", STOCK], stdin=PIPE, stdout=PIPE, text=True)
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"{scratch}\t{comparison.LAUNCHER}\t{child.__file__}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        said = Path(scratch, "stderr")
        return subprocess.CompletedProcess([], code, "", said.read_text() if said.exists() else "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_child", run_forked)
        yield
    if server:
        server.kill()
        server.wait()
