"""docs/results/paper.md: every number on it comes from the committed results."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from probescale.study.cells import load_study

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "paper.md"
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")


@pytest.fixture(scope="module")
def paper():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("paper")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def made_by(script: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.split(f"<!-- made by benchmarks/{script} -->")[1].split("<!-- end of what is made -->")[0].strip()


def test_the_tables_are_those_of_the_committed_results(paper):
    sections = [
        paper.render(title, paper.load(paper.EVIDENCE / name), f"paper/{name}")
        for name, title in paper.STUDIES.items()
        if (paper.EVIDENCE / name).exists()
    ]
    assert made_by("paper.py") == "\n\n".join([paper.write_known(), *sections])
    for figure in re.findall(r"\]\((paper/[^)]+)\)", made_by("paper.py")):
        assert (PAGE.parent / figure).is_file()


def test_the_table_of_built_in_tasks_is_that_of_the_committed_runs(paper):
    tasks = importlib.import_module("builtin_tasks")
    assert made_by("builtin_tasks.py") == tasks.table(tasks.known())
    for row in tasks.known().values():
        assert json.loads(json.dumps(row))["failure"] is None


def test_figures_in_the_text_are_those_of_the_tables(paper):
    """What is said around the tables repeats their numbers."""
    text = PAGE.read_text(encoding="utf-8")
    tables = made_by("paper.py") + made_by("builtin_tasks.py")
    around = text.replace(made_by("paper.py"), "").replace(made_by("builtin_tasks.py"), "")
    assert set(DECIMAL.findall(around)) <= set(DECIMAL.findall(tables))


@pytest.mark.parametrize(("name", "half", "third"), [("scaled_table1", "k=6", "k=4"), ("scaled_t5", "k=4", "k=3")])
def test_the_scaled_studies_ask_for_the_rows_of_the_paper(paper, monkeypatch, name, half, third):
    """Without their data they cannot be checked further than this."""
    monkeypatch.setattr("probescale.study.cells.check", importlib.import_module("probescale.pipeline.validate").parse)
    study = load_study(ROOT / "configs" / "paper" / f"{name}.yaml")
    assert {cell.budget for cell in study.cells} == {half, third}
    assert {cell.strategy for cell in study.cells} == {"top_k", "uniform_k", "contiguous", "tried"}
    assert len(study.cells) == 2 * 2 * 4 * 3
    assert {row.method for row in study.settings.published} >= {"original", "top_k", "uniform_k", "contiguous"}
    assert not any(cell.config.recovery.distil or cell.config.shrink.asked for cell in study.cells)
