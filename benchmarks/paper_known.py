"""What earlier measurements say about the paper's claims: rows of its Table 1, and where relevance peaks.

Rows come from benchmarks/trained.jsonl (made by selection.py), curves from docs/results/figures (made by curves.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import numpy as np

from probescale.models.subsets import Subset, format_layers
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeResult
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.select import select
from probescale.study.cells import load_study

HERE = Path(__file__).parent
CURVES = HERE.parent / "docs" / "results" / "figures"
LAYERS, BUDGETS = 12, (6, 4)
ROWS = {
    "top_k": "Top-{} Layers",
    "uniform_k": "Uniform-{} Layers",
    "contiguous": "ProbeScale (Contiguous-{})",
    "stitched": "-",
}
WEIGHTS = {"sst2": {"sst2": 1.0}, "qnli": {"qnli": 0.5, "pos": 0.5}}  # as in the paper

ROWS_NOTE = (
    "gte-small, 1,500 labelled rows, 3 epochs on labels alone, new heads, two seeds ([how](selection.md)). QNLI's "
    "layers were chosen by its own probe alone. In brackets: the difference to ProbeScale's row in points, and its p "
    "value (Student's t with the spread between seeds, pooled over all subsets trained on the task; chance in the "
    "choice of dev rows is not in it). `stitched` is one of our own rules."
)


def write_known() -> str:
    """The section of the page."""
    parts = [
        "## Rows of Table 1 that are trained",
        ROWS_NOTE,
        _rows_table(),
        "## Where relevance peaks",
        "gte-small, linear probes on 4,000 training rows (16,186 words), scored on others ([curves](curves.md)); 95 % "
        "intervals in brackets. Relevance for QNLI is half its own probe and half parts of speech, as in the paper.",
        _curve_table(),
        _peaks(),
    ]
    return "\n\n".join(parts)


def _trained(task: str) -> dict[Subset, list[float]]:
    found: dict[Subset, list[float]] = {}
    for line in (HERE / "trained.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["task"] == task:
            found.setdefault(tuple(row["kept"]), []).append(row["accuracy"])
    return found


def _rows_table() -> str:
    heads = ("row of the paper", "strategy", "SST-2: layers", "accuracy", "QNLI: layers", "accuracy", "in the paper")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    table = load_study(HERE.parent / "configs" / "paper" / "table1.yaml").settings.published
    there = {row.name: f"{row.values['sst2']} / {row.values['qnli']}" for row in table}
    known = {task: _trained(task) for task in WEIGHTS}
    seen = {task: Evidence.from_scores(load_scores(HERE / "evidence" / f"{task}.json")) for task in WEIGHTS}
    whole = " | ".join(f"1-12 | {100 * mean(known[task][tuple(range(1, LAYERS + 1))]):.1f}" for task in WEIGHTS)
    lines.append(f"| {table[0].name} | original | {whole} | {there[table[0].name]} |")
    for k in BUDGETS:
        chosen = {name: {task: select(seen[task], Constraints(parse_budget(k=k)), name).kept for task in WEIGHTS}
                  for name in ROWS}  # fmt: skip
        for name, title in ROWS.items():
            cells = []
            for task in WEIGHTS:
                kept, rule = chosen[name][task], chosen["contiguous"][task]
                cells += [format_layers(kept), _accuracy(known[task], kept, rule)]
            row = title.format(k)
            lines.append(f"| {row} | {name} | {' | '.join(cells)} | {there.get(row, '-')} |")
    return "\n".join(lines)


def _accuracy(known: dict[Subset, list[float]], kept: Subset, rule: Subset) -> str:
    """The mean of the seeds, and how it differs from that of the paper's rule."""
    from scipy.special import stdtr

    value = 100 * mean(known[kept])
    if kept == rule:
        return f"{value:.1f}"
    difference = value - 100 * mean(known[rule])
    several = [values for values in known.values() if len(values) > 1]
    error = 100 * float(np.sqrt(np.mean([np.var(values, ddof=1) for values in several]) * 2 / len(known[kept])))
    p = 2 * stdtr(len(several), -abs(difference) / error)
    return f"{value:.1f} ({difference:+.1f}, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


def _probes() -> dict[str, ProbeResult]:
    return {name: load_scores(CURVES / f"{name}.json").probes[name] for name in ("sst2", "qnli", "pos")}


def _relevance() -> dict[str, list[float]]:
    scores = {name: found.scores for name, found in _probes().items()}
    return {task: [sum(share * scores[name][layer] for name, share in parts.items()) for layer in range(LAYERS)]
            for task, parts in WEIGHTS.items()}  # fmt: skip


def _curve_table() -> str:
    curves = {
        name: load_scores(CURVES / f"{name}.json").probes[name].measures["accuracy"] for name in ("sst2", "qnli", "pos")
    }
    relevance = _relevance()
    heads = ("layer", "SST-2 probe", "QNLI probe", "POS probe", "relevance for SST-2", "relevance for QNLI")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for layer in range(LAYERS):
        cells = [f"{100 * one.values[layer]:.1f} ({100 * one.low[layer]:.1f} to {100 * one.high[layer]:.1f})"
                 for one in curves.values()]  # fmt: skip
        cells += [f"{relevance[task][layer]:.3f}" for task in WEIGHTS]
        lines.append(f"| {layer + 1} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _peaks() -> str:
    found = []
    for task, values in _relevance().items():
        best = 1 + values.index(max(values))
        blocks = [_best_block(values, k) for k in BUDGETS]
        kept = " and ".join(f"{block[0]}-{block[-1]}" for block in blocks)
        found.append(
            f"{task}: relevance is highest at layer {best} of {LAYERS}; the best blocks of 6 and 4 layers are {kept}."
        )
    return "\n".join(f"- {one}" for one in found)


def _best_block(values: list[float], k: int) -> range:
    """Eq. 2: the neighbouring layers with the largest sum, numbered from 1."""
    starts = range(len(values) - k + 1)
    start = max(starts, key=lambda first: (round(sum(values[first : first + k]), 9), -first))
    return range(start + 1, start + k + 1)
