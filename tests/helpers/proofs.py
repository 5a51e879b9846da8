"""Proofs in forks of one process that has the stock libraries loaded.

A fork is as clean as a fresh process, and much faster: most of a proof's time is the import of transformers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from filelock import FileLock

from probescale.models.proof import child, comparison

# The server's program: it loads stock libraries and nothing of ProbeScale, then forks once per line that it reads.
PROGRAM = """
import os, sys, traceback
import safetensors.torch, torch, transformers
transformers.AutoTokenizer, transformers.BertForSequenceClassification, transformers.PreTrainedTokenizerFast
for line in sys.stdin:
    scratch, start, program = line.rstrip().split(chr(9))
    if child := os.fork():
        print(scratch, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=chr(9), flush=True)
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


class ProofServer:
    """Runs proofs one at a time, for this process and for forks of it."""

    def __init__(self, folder: Path) -> None:
        self._lock = folder / "proofs.lock"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start the server's process unless it runs. Call it before a fork: the fork uses the same one."""
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=PIPE, stdout=PIPE, text=True)
        return self._process

    def prove(self, scratch: str) -> subprocess.CompletedProcess[str]:
        """Do what `comparison.run_child` does, in a fork of the server."""
        process = self.start()
        assert process.stdin
        assert process.stdout
        with FileLock(self._lock):  # a new lock each time: forks must not share it
            process.stdin.write(f"{scratch}\t{comparison.LAUNCHER}\t{child.__file__}\n")
            process.stdin.flush()
            asked, code = "", ""
            while asked != scratch:  # an answer that a stopped process did not wait for may come first
                line = process.stdout.readline()
                assert line, "the server has ended"
                asked, _, code = line.rstrip().partition("\t")
        errors = Path(scratch, "stderr")
        return subprocess.CompletedProcess([], int(code), "", errors.read_text() if errors.exists() else "")

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()


@contextmanager
def forked_proofs() -> Iterator[ProofServer]:
    """Replace the fresh process of every proof by a fork of the server."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        server = ProofServer(Path(folder))
        patch.setattr(comparison, "run_child", server.prove)
        yield server
        server.stop()
