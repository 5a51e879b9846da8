"""Fixtures that all tests share. They are built from tests/helpers/.

PyTorch and transformers are imported inside fixtures: the process that only hands out tests does not need them.
"""

from __future__ import annotations

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports the hub client: tests make no network call

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.data import TinyTask, labelled_rows, write_csv

if TYPE_CHECKING:
    from helpers.proofs import ProofServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with slow tests first, so that no core waits for another one's long file at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def quick_proofs() -> Iterator[ProofServer]:
    """Prove cut models in forks of one process with the libraries loaded (helpers/proofs.py)."""
    from helpers.proofs import forked_proofs

    with forked_proofs() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def libraries_without_garbage() -> None:
    """Let the garbage collector pass over what is loaded by now: it is called after every training."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use a temporary cache: the user's own is neither read nor written."""
    os.environ["PROBESCALE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def task_files(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    """Write a small two-class task: 120 training rows and 40 dev rows."""
    folder = tmp_path_factory.mktemp("task")
    rows = labelled_rows(160)
    return TinyTask(write_csv(folder / "train.csv", rows[:120]), write_csv(folder / "dev.csv", rows[120:]))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a function from a family's name to the folder of a tiny saved model, which is built once."""
    from helpers.models import tiny_model

    folders: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in folders:
            model, tokenizer = tiny_model(family)
            folders[family] = tmp_path_factory.mktemp("models") / family
            model.save_pretrained(folders[family])
            tokenizer.save_pretrained(folders[family])
        return folders[family]

    return folder


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny trained decoder (model), a corpus, other text (second.txt), and a finished run on them."""
    from helpers.decoders import save_decoder, write_corpus, write_other_text
    from probescale.pipeline.run import run
    from probescale.pipeline.validate import check

    folder = tmp_path_factory.mktemp("text")
    model, corpus = save_decoder(folder / "model"), write_corpus(folder, 600)
    second = write_other_text(folder / "second.txt")
    task = {"name": "tales", "kind": "text", "train": str(corpus), "second": str(second)}
    raw = {"model": {"source": model, "max_length": 64}, "task": task, "selection": {"k": 2}}
    raw |= {"compare": ["plain_loss", "full_model"]}
    run(check({**raw, "recovery": {"epochs": 1, "learning_rate": 3e-3}}), folder / "run")
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory, model_folder: Callable[[str], Path]) -> Path:
    """The folder of a tiny sentence encoder, as sentence-transformers writes it."""
    from probescale.models.loading import load_encoder
    from probescale.models.pooling import SentencePooling, write_pooling
    from probescale.models.saving import write_model

    folder = tmp_path_factory.mktemp("encoder")
    loaded = load_encoder(str(model_folder("bert")), None)
    write_model(loaded, folder)
    write_pooling(SentencePooling(states=loaded.model.config.hidden_size), folder, 32)
    return folder


@dataclass(frozen=True)
class Outcome:
    """What a command ends with: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process, as `probescale ARGS` does."""
    from probescale.cli import main

    def invoke(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["probescale", *map(str, args)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return invoke
