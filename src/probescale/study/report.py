"""The written report of a study: report.md, tables.tex and the figures, from the rows of results.csv."""

from __future__ import annotations

from pathlib import Path

from probescale.report.escaping import escape_markdown
from probescale.study.comparison import compare_best_methods
from probescale.study.figures import write_criterion, write_map, write_trade_off
from probescale.study.folder import StudyFolder
from probescale.study.page import study_page
from probescale.study.results import Results
from probescale.study.tables import study_notes, study_tables
from probescale.utils.files import write_text


def write_study_report(folder: StudyFolder, results: Results) -> None:
    """Whatever is there is told, and what is not there is named."""
    study, command = folder.study()
    tables, found = study_tables(results), compare_best_methods(folder, results.rows)
    figures = _figures(folder.path, results) if results.rows else []
    evidence = [f"- {escape_markdown(one.sentence())}" for one in found]
    parts = ["# ProbeScale: a study"]
    if not results.complete:
        parts += ["## Not complete", "\n".join(f"- {escape_markdown(note)}" for note in study_notes(results))]
    for table in tables:
        parts += [f"## {escape_markdown(table.title)}", table.markdown()]
    parts += ["Bold: the best under its budget. Parameters count embeddings and head; retention is the share of the "
              "original's metric; speed is how many times as fast as the original, timed in turn. All rows stand in "
              "results.csv, each with its cell's folder."]  # fmt: skip
    if evidence:
        parts += [
            "## What the evidence supports",
            "\n".join(evidence),
            "Exact sign test over the dev rows of all seeds.",
        ]
    parts += [f"![{path.stem}]({path.relative_to(folder.path)})" for path in figures]
    write_text(folder.path / "report.md", "\n\n".join(parts) + "\n")
    write_text(folder.path / "report.html", study_page(folder, study, command, results, found))
    write_text(folder.path / "tables.tex", "\n\n".join(table.latex() for table in tables) + "\n")


def _figures(folder: Path, results: Results) -> list[Path]:
    """The SVG of every figure: up to three for each model and task."""
    made = []
    for model, task in dict.fromkeys((row.model, row.task) for row in results.rows):
        rows = [row for row in results.rows if (row.model, row.task) == (model, task)]
        stem = folder / "figures" / f"{model}-{task}"
        made.append(write_trade_off(rows, stem.with_name(f"{stem.name}-trade-off"))[0])
        made += write_criterion(rows, stem.with_name(f"{stem.name}-criterion"))[:1]
        made.append(write_map(rows, stem.with_name(f"{stem.name}-layers"))[0])
    return made
