"""Examples of README and docs/: commands parse, configurations are valid, Python runs."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from ruamel.yaml import YAML

from probescale import load_config, run
from probescale.cli import app
from probescale.config import RunConfig
from probescale.deploy.compressed import Compressed
from probescale.study.settings import StudyConfig

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ("cli.md", "modules.md")  # the code's own words, with placeholders
PROGRAM = typer.main.get_command(app)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|[|;&]|-m)\s*probescale ([a-z].*)")


class Example(NamedTuple):
    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"


def find_blocks(language: str) -> Iterator[Example]:
    for page in PAGES:
        for found, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if found == language:
                yield Example(page.relative_to(ROOT).as_posix(), text)


def find_commands() -> Iterator[Example]:
    """Commands in shell blocks, in indented blocks and between backticks."""
    for page in PAGES:
        if page.name in GENERATED:
            continue
        text = page.read_text(encoding="utf-8")
        lines = [line for block in BLOCK.findall(text) if block[0] == "sh" for line in block[1].splitlines()]
        plain = BLOCK.sub("", text)
        lines += re.findall(r"^    (.+)$", plain, re.MULTILINE)
        lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", plain)]
        for line in lines:
            if command := COMMAND.search(line):
                yield Example(page.relative_to(ROOT).as_posix(), command[1])


def parse(words: list[str]) -> list[str]:
    """Parse a command as `probescale` does, without running it; returns the arguments that are left over."""
    command: Any = PROGRAM
    while hasattr(command, "commands"):
        if command.name == "study" and words[0] not in command.commands:
            words = ["run", *words]  # `study CONFIG` is `study run CONFIG`
        command, words = command.commands[words[0]], words[1:]
    values, rest, _ = command.make_parser(command.context_class(command)).parse_args(words)
    for parameter in command.params:
        given = values.get(parameter.name)
        assert given or not parameter.required or not words, f"{parameter.name} is missing"  # no words: only its name
        kind = parameter.type_descriptor.annotation
        if given and isinstance(kind, type) and issubclass(kind, Enum):
            kind(given)
    return rest


def test_the_examples_are_found():
    assert len(list(find_commands())) > 40
    assert len(list(find_blocks("python"))) >= 5
    assert len(list(find_blocks("yaml"))) >= 1


@pytest.mark.parametrize("example", find_commands(), ids=str)
def test_a_command_parses(example: Example):
    words = shlex.split(re.split(r"\s[|>]\s", example.text)[0], comments=True)
    assert parse(words) == []


@pytest.mark.parametrize("example", find_blocks("yaml"), ids=str)
def test_a_configuration_is_valid(example: Example):
    raw = YAML(typ="safe").load(example.text)
    if "study" in raw:
        StudyConfig.model_validate(raw.pop("study"))
    config = RunConfig.model_validate({"model": {"source": "m"}, "task": {"train": "t"}, "selection": {"k": 2}} | raw)
    assert raw.keys() <= config.model_fields_set


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_a_page_exist(page: Path):
    """Names with a folder, such as `pipeline/run.py`: of the repository or of the package."""
    named = re.findall(r"`([a-z_]+/[\w./]*(?:\.py|\.yaml|\.csv|\.jsonl|/))`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src/probescale"))] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_folder, task_files) -> Path:
    """A folder with `my-model`, `reviews.csv` and `my.yaml`, as the examples assume them."""
    place = tmp_path_factory.mktemp("examples")
    shutil.copytree(model_folder("bert"), place / "my-model")
    lines = task_files.train.read_text(encoding="utf-8").splitlines(keepends=True)
    (place / "reviews.csv").write_text("".join(lines[:61]), encoding="utf-8")
    config = {
        "model": {"source": "my-model", "max_length": 32},
        "task": {"name": "tiny", "train": "reviews.csv"},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"strategy": "uniform_k", "k": 2},
        "recovery": {"epochs": 1, "augment": 0},
    }
    with (place / "my.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(config, file)
    return place


@pytest.mark.slow
def test_python_examples_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """In the order in which they depend on each other: `compress` first, then what uses its model."""
    monkeypatch.chdir(folder)
    run(load_config("my.yaml"), "runs/my")  # of the page about deploying
    examples = sorted(find_blocks("python"), key=lambda example: "compress" not in example.text)
    elsewhere = [example for example in examples if example.page == "docs/guides/deploy.md"]  # tests/deploy runs it
    compressed: list[Compressed] = []
    for example in examples:
        names: dict[str, Any] = {}
        if example in elsewhere[1:] or ("compress(" in example.text and compressed):  # the same line on two pages
            continue
        exec(compile(example.text, str(example), "exec"), names)
        if "small" in names:
            compressed.append(names["small"])
            assert "times smaller" in capsys.readouterr().out
            assert (folder / "small" / "model.safetensors").is_file()
        if "classify" in names:
            assert names["classify"]("the film was good")[0]["score"] > 0
    assert [small.folder for small in compressed] == [Path("runs/reviews")]
    assert {example.text.count("compress(") for example in examples} == {0, 1}
