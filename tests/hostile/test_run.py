"""A run on hostile data with a secret in the environment: everything that it writes and prints is checked."""

from __future__ import annotations

import io
import json
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from helpers.data import labelled_rows
from helpers.hostile import ESCAPES, MARKUP, SCRIPT, TOKEN, elements, markup
from probescale.cli import main
from probescale.report.page import Page, render

pytestmark = pytest.mark.slow
LABELS = (f"{SCRIPT} {ESCAPES}", MARKUP)


@dataclass(frozen=True)
class Ran:
    out: Path
    printed: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory, model_folder) -> Ran:
    folder = tmp_path_factory.mktemp("hostile")
    model = folder / "<img src=x onerror=alert(1)> `$x$` [a](b)\x1b[31m"
    shutil.copytree(model_folder("bert"), model)
    rows = [
        {"text": f"{text} {SCRIPT} {ESCAPES} {MARKUP}", "label": LABELS[label == "positive"]}
        for text, label in labelled_rows(60)
    ]
    data = folder / "<b onclick=alert(1)>\x1b[31m.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "model": {"source": str(model), "max_length": 16},
        "task": {"train": str(data)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},
        "selection": {"k": 2, "strategy": "top_k"},
        "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 8},
        "compare": [],
    }
    YAML().dump(config, folder / "config.yaml")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            patch.setenv(name, TOKEN)
        patch.setenv("PIP_INDEX_URL", f"https://me:{TOKEN}@index.example/simple")
        patch.setattr(sys, "argv", ["probescale", "run", str(folder / "config.yaml"), "--out", str(folder / "out")])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, printed.getvalue()
    return Ran(folder / "out", printed.getvalue())


def test_the_page_has_only_its_own_elements(ran):
    page = (ran.out / "report.html").read_text()
    empty = render(Page("", [], [], [], [], "", [], [], []))
    assert elements(page) == elements(empty)
    assert "<img" not in page
    assert json.loads(page.split('id="data">')[1].split("</script>")[0])["changed"]["slices"][-2]["name"].startswith(
        "label "
    )


def test_the_report_has_only_its_own_markup(ran):
    page = (ran.out / "report.md").read_text()
    assert markup(page) == {"probes.svg"}
    assert r"\</script\>\<script\>" in page
    assert "\x1b" not in page


def test_the_model_card_has_no_markup_and_no_other_settings(ran):
    _, front, words = (ran.out / "model" / "README.md").read_text().split("---\n", 2)
    settings = YAML(typ="safe").load(front)
    assert set(settings) == {"library_name", "pipeline_tag", "metrics", "tags", "model-index"}
    assert markup(words) == set()
    assert "\x1b" not in words


def test_the_figure_has_no_active_elements(ran):
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(ran.out / "probes.svg").iter()}
    assert "svg" in tags
    assert not tags & {"script", "image", "foreignObject", "a"}


def test_labels_are_not_changed(ran):
    names = json.loads((ran.out / "model" / "config.json").read_text())["id2label"]
    assert set(names.values()) == set(LABELS)


def test_no_control_character_reaches_the_terminal(ran):
    assert "Probe scores by layer" in ran.printed
    assert not set(ran.printed) & set("\x1b\x07\x9b\u202e")


def test_no_secret_is_written_or_printed(ran):
    files = [path for path in ran.out.parent.rglob("*") if path.is_file()]
    assert len(files) > 15
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
    assert TOKEN not in ran.printed
