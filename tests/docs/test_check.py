"""docs/check.py reports orphans, dead links and remote resources."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECKER = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "check.py"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("nav:\n  - Home: index.md\n  - More: [{Lost: lost.md}]\n")
    (tmp_path / "docs/index.md").write_text("# Home\n\n## A `b`, c\n\n[a](#a-b-c) [b](other.md#x) `[c](code.md)`\n")
    (tmp_path / "docs/other.md").write_text("# Other\n\n[a](gone.md) [b](https://example.org)\n")
    return tmp_path


def test_orphans_and_missing_pages(project: Path):
    assert list(CHECKER["find_orphans"](project)) == [
        "docs/other.md: not in the navigation of mkdocs.yml",
        "mkdocs.yml: docs/lost.md does not exist",
    ]


def test_dead_links(project: Path):
    assert list(CHECKER["find_dead_links"](project)) == [
        "docs/index.md: other.md#x: no such heading",
        "docs/other.md: gone.md does not exist",
    ]


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<script src="https://example.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//example.org/a.css">', 1),
        ('<img src="http://example.org/a.png">', 1),
        ('<pre class="mermaid">a</pre>', 1),
        ('<a href="https://example.org">a</a><script src="a.js"></script><link rel="canonical" href="https://a.b">', 0),
    ],
)
def test_remote_resources(tmp_path: Path, html: str, count: int):
    (tmp_path / "index.html").write_text(html)
    assert len(list(CHECKER["find_remote_resources"](tmp_path))) == count


def test_a_site_that_was_not_built_is_a_problem(tmp_path: Path):
    assert list(CHECKER["find_remote_resources"](tmp_path))
