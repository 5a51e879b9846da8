"""Writes the report of a study: report.md, report.html, tables.tex and figures."""

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
    """Write the report on all finished cells; it lists the unfinished ones."""
    tables, comparisons = study_tables(results), compare_best_methods(folder, results.rows)
    figures = _figures(folder.path, results) if results.rows else []
    evidence = [f"- {escape_markdown(comparison.sentence())}" for comparison in comparisons]
    parts = ["# ProbeScale: a study"]
    if not results.complete:
        parts += ["## Unfinished cells", "\n".join(f"- {escape_markdown(note)}" for note in study_notes(results))]
    for table in tables:
        parts += [f"## {escape_markdown(table.title)}", table.markdown()]
    parts.append(
        "Bold: the highest mean under its budget, which may be chance (see below). Parameters include embeddings and "
        "head; retention is the metric divided by the original's; speed is how many times as fast as the original, "
        "both timed alternately. All rows are in results.csv, each with the folder of its cell."
    )
    if evidence:
        parts += [
            "## Which differences are significant",
            "\n".join(evidence),
            "Rows of dev and trainings are two sources of chance. A lead is significant if it exceeds a margin for "
            "both (Student's t, at 5 %) and if an exact sign test over the rows, each counted once, agrees. One "
            "training says nothing about another, so one seed is never enough. Of twenty comparisons of equal methods, "
            "one is expected to look significant.",
        ]
    parts += [f"![{path.stem}]({path.relative_to(folder.path)})" for path in figures]
    write_text(folder.path / "report.md", "\n\n".join(parts) + "\n")
    write_text(folder.path / "report.html", study_page(folder, results, comparisons))
    write_text(folder.path / "tables.tex", "\n\n".join(table.latex() for table in tables) + "\n")


def _figures(folder: Path, results: Results) -> list[Path]:
    """Write up to three figures for each model and task; their SVG files."""
    paths = []
    for model, task in dict.fromkeys((row.model, row.task) for row in results.rows):
        rows = [row for row in results.rows if (row.model, row.task) == (model, task)]
        stem = folder / "figures" / f"{model}-{task}"
        paths.append(write_trade_off(rows, stem.with_name(f"{stem.name}-trade-off"))[0])
        paths += write_criterion(rows, stem.with_name(f"{stem.name}-criterion"))[:1]
        paths.append(write_map(rows, stem.with_name(f"{stem.name}-layers"))[0])
    return paths
