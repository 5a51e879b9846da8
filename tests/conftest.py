"""Fixtures that tests of every room use; what they are made of stands in helpers/."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports the hub client: tests make no network call

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.data import TinyTask, labelled_rows, write_csv
from helpers.models import tiny_model
from helpers.proofs import forked_proofs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: at the end, no core waits for another one's long file."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def quick_proofs() -> Iterator[None]:
    with forked_proofs():
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is read from or left in the user's cache."""
    os.environ["PROBESCALE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def task_files(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    folder = tmp_path_factory.mktemp("task")
    rows = labelled_rows(160)
    return TinyTask(write_csv(folder / "train.csv", rows[:120]), write_csv(folder / "dev.csv", rows[120:]))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family -> folder of a saved tiny model, made once."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            model, tokenizer = tiny_model(family)
            made[family] = tmp_path_factory.mktemp("models") / family
            model.save_pretrained(made[family])
            tokenizer.save_pretrained(made[family])
        return made[family]

    return folder


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process, as `probescale ARGS` would."""
    from probescale.cli import main

    def invoke(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["probescale", *map(str, args)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return invoke
