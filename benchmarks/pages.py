"""Measured tables go into pages of docs/ between two marks; what is written around them stays."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end of what is made -->"


def write_tables(page: str, benchmark: str, tables: str) -> None:
    path, begin = DOCS / page, f"<!-- made by benchmarks/{benchmark} -->"
    before, rest = path.read_text().split(begin)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{begin}\n\n{tables}\n\n{END}{after}")
