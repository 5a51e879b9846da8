"""What docs/results/paper.md shows of a study: read from its folder, kept as small tables, written as Markdown."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from probescale.probing.score_files import load_scores
from probescale.study.cells import Study
from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow, read_predictions, read_results
from probescale.study.significance import SIGNIFICANCE, compare_methods

RULE = "contiguous"  # the paper's
FILES = ("results", "probes", "comparisons")
Rows = list[dict[str, str]]


def collect(folder: StudyFolder, study: Study, target: Path, figures: Path) -> None:
    """Copy results, report and figures of a study, and write its probe scores and paired comparisons as tables."""
    results = read_results(folder, study)
    target.mkdir(parents=True, exist_ok=True)
    for name in ("results.csv", "report.md"):
        shutil.copy(folder.path / name, target / name)
    figures.mkdir(parents=True, exist_ok=True)
    for path in (folder.path / "figures").glob("*-trade-off.svg"):
        shutil.copy(path, figures)
    _write(target / "probes.csv", list(_probes(folder, study)))
    _write(target / "comparisons.csv", list(_comparisons(folder, results.rows)))


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["task"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _probes(folder: StudyFolder, study: Study) -> Iterator[dict[str, Any]]:
    """Accuracy of every probe at every layer, with its interval, and the relevance (Eq. 1), for every seed."""
    for name, cells in study.preparations.items():
        path = folder.preparation(name) / "scores.json"
        if not path.exists():
            continue
        scores = load_scores(path)
        for probe, found in scores.probes.items():
            curve = found.measures[found.metric]
            columns = zip(curve.values, curve.low, curve.high, scores.relevance, strict=True)
            for layer, (value, low, high, relevance) in enumerate(columns, 1):
                place = {"task": cells[0].task, "seed": cells[0].seed, "probe": probe, "layer": layer}
                values = {"accuracy": value, "low": low, "high": high, "relevance": relevance}
                yield place | {key: round(number, 6) for key, number in values.items()}


def _comparisons(folder: StudyFolder, rows: Sequence[ResultRow]) -> Iterator[dict[str, Any]]:
    """The paper's rule against every other row of its budget, and the other model; paired by dev row and seed."""
    own = [row for row in rows if row.strategy == RULE]
    for task, budget in dict.fromkeys((row.task, row.budget) for row in own):
        ours = {row.seed: row for row in own if (row.task, row.budget) == (task, budget)}
        rivals = [row for row in rows if row.task == task and row.budget in (budget, "") and row.strategy != RULE]
        for name in dict.fromkeys(row.strategy for row in rivals):
            theirs = {row.seed: row for row in rivals if row.strategy == name}
            seeds = sorted(ours.keys() & theirs.keys())
            if not seeds:
                continue
            differences = np.array([_differences(folder, ours[seed], theirs[seed]) for seed in seeds])
            p = compare_methods(differences)
            same = all(ours[seed].layers == theirs[seed].layers for seed in seeds)
            by_row = differences.mean(0)
            yield {
                "task": task,
                "budget": budget,
                "rule": RULE,
                "other": name,
                "seeds": len(seeds),
                "lead": round(100 * float(differences.mean()), 3),
                "wins": int((by_row > 0).sum()),
                "losses": int((by_row < 0).sum()),
                "p": "" if p is None else float(f"{p:.3g}"),
                "same_layers": same,
            }


def _differences(folder: StudyFolder, ours: ResultRow, theirs: ResultRow) -> np.ndarray:
    """(dev rows,) 1 where only the rule is right, -1 where only the other one is."""
    mine = read_predictions(folder.cell(ours.cell))
    other = read_predictions(folder.cell(theirs.cell)) if theirs.is_subnetwork else mine
    answers = zip(mine["right"], mine[RULE], other[theirs.strategy], strict=True)
    return np.array([float(right == one) - float(right == two) for right, one, two in answers])


def load(target: Path) -> dict[str, Rows]:
    """The tables that `collect` wrote."""
    found = {}
    for name in FILES:
        with (target / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            found[name] = list(csv.DictReader(file))
    return found


def render(title: str, found: dict[str, Rows], figures: str) -> str:
    """The section of one study."""
    parts = [f"## {title}"]
    for task in dict.fromkeys(row["task"] for row in found["results"]):
        rows = {name: [row for row in table if row.get("task") == task] for name, table in found.items()}
        model = rows["results"][0]["model"]
        seeds = len({row["seed"] for row in rows["results"]})
        parts += [
            f"### {task}: accuracy, {seeds} seed{'s' * (seeds > 1)}, {rows['results'][0]['examples']} dev rows",
            _results_table(rows["results"]),
            _comparison_table(rows["comparisons"]),
            f"![{task}: accuracy over size]({figures}/{model}-{task}-trade-off.svg)",
            f"#### {task}: what the layers know",
            _probe_table(rows["probes"]),
            _peaks(rows["probes"]),
        ]
    return "\n\n".join(part for part in parts if part)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines))


def _results_table(rows: Rows) -> str:
    groups: dict[tuple[str, str], Rows] = {}
    for row in rows:
        groups.setdefault((row["budget"], row["strategy"]), []).append(row)
    lines = []
    for (budget, strategy), group in groups.items():
        first, values = group[0], [100 * float(row["value"]) for row in group]
        kept = [float(row["retention"]) for row in group if row["retention"]]
        lines.append((
            first["published_as"] or "-",
            strategy,
            budget or "-",
            "; ".join(dict.fromkeys(row["layers"] for row in group)),
            f"{int(first['params']):,}",
            f"{float(first['ratio_total']):.1%} / {float(first['ratio_layers']):.1%}",
            f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else ""),
            f"{mean(kept):.1%}" if kept else "-",
            f"{100 * float(first['published']):.1f}" if first["published"] else "-",
        ))  # fmt: skip
    heads = ("row of the paper", "here", "budget", "layers kept, by seed", "parameters",
             "of all / of layers", "accuracy", "retention", "the paper's accuracy")  # fmt: skip
    return _table(heads, lines)


def _comparison_table(rows: Rows) -> str:
    lines = []
    for row in rows:
        verdict = "one training each: not decided"
        if row["same_layers"] == "True":
            verdict = "the same layers"
        elif row["p"]:
            lead = "better" if float(row["lead"]) > 0 else "worse"
            verdict = lead if float(row["p"]) < SIGNIFICANCE else "no significant difference"
        counts = f"{row['wins']} / {row['losses']}"
        lines.append((row["budget"], row["other"], f"{float(row['lead']):+.2f}", counts, row["p"] or "-", verdict))
    heads = ("budget", "contiguous against", "points", "dev rows better / worse", "p", "contiguous is")
    return _table(heads, lines) if lines else ""


def _probe_table(rows: Rows) -> str:
    probes = list(dict.fromkeys(row["probe"] for row in rows))
    lines = []
    for layer in dict.fromkeys(row["layer"] for row in rows):
        here = [row for row in rows if row["layer"] == layer]
        cells = []
        for probe in probes:
            own = [row for row in here if row["probe"] == probe]
            value, low, high = (100 * mean(float(row[key]) for row in own) for key in ("accuracy", "low", "high"))
            cells.append(f"{value:.1f} ({low:.1f} to {high:.1f})")
        relevance = mean(float(row["relevance"]) for row in here)
        lines.append((layer, *cells, f"{relevance:.4f}"))
    return _table(("layer", *(f"{probe}: accuracy (95 %)" for probe in probes), "relevance"), lines)


def _peaks(rows: Rows) -> str:
    """At which layer relevance is highest, for every seed."""
    peaks = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        best = max((row for row in rows if row["seed"] == seed), key=lambda row: float(row["relevance"]))
        peaks.append(f"layer {best['layer']} (seed {seed})")
    layers = max(int(row["layer"]) for row in rows)
    return f"Relevance is highest at {', '.join(peaks)} of {layers}; means over the seeds above, intervals of one draw."
