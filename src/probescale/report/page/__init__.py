"""report.html: one self-contained file. Its data are embedded as JSON and become text, never markup."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from probescale.errors import UserError
from probescale.models.parameters import Parameters
from probescale.models.subsets import Subset
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.report.expectation import falls_behind_probe
from probescale.report.verdict import Decision
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES

FLOORS = ("majority", "bag of words")


class Column(NamedTuple):
    """A column of the table of models."""

    key: str  # in a row
    title: str
    kind: str  # format: word, count, points, percent, times or plain
    below: str = ""  # key of a text that stands below, smaller


class Card(NamedTuple):
    """A figure to see first."""

    value: str
    caption: str
    remark: str = ""
    share: float | None = None  # of the original's value: drawn as two bars
    doubtful: bool = False  # the remark is a warning


class Page(NamedTuple):
    """What page.js shows."""

    title: str
    lead: Sequence[str]  # further sentences
    cards: Sequence[Card]
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    bars: str  # what the error bars in the chart mean
    places: Sequence[Mapping[str, Any]]  # explorer entries: one per model and task
    notes: Sequence[str]
    record: Sequence[tuple[str, str]]
    verdict: tuple[Decision, str, str] = ("unsure", "", "")  # decision, heading, reasons: shown first
    metric: str = "metric"
    factor: float = 100.0  # by which values and scores are shown
    line: tuple[float, str] | None = None  # a value of the metric that is enough, and its name
    search: Mapping[str, Any] | None = None  # what a search for the smallest model was asked, and what it trained
    ladder: Mapping[str, Any] | None = None  # every size of a ladder, the law, and what to take for which wish
    changed: Mapping[str, Any] | None = None  # regressions of the smaller model
    more: Mapping[str, Any] | None = None  # tables of one kind of task: a title, and sentences with their tables
    means: Sequence[Mapping[str, Any]] | None = None  # rows of the table, where each stands for several in the chart


def render(page: Page) -> str:
    """The page as HTML."""
    parts = files("probescale.report.page")
    text = parts.joinpath("page.html").read_text(encoding="utf-8")
    # JSON inside HTML: a < in the data must not end the script element.
    data = json.dumps(page._asdict(), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    script = parts.joinpath("page.js").read_text(encoding="utf-8")
    for mark, content in {
        "/*HASH*/": f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",  # of the only script that may run
        "/*STYLE*/": parts.joinpath("page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": script,
        "/*DATA*/": data,  # last: the data may contain the other marks
    }.items():
        text = text.replace(mark, content, 1)
    return text


def explorer_entry(
    name: str,
    scores: ProbeScores,
    strategy: str,
    kept: Subset,
    metric: str,
    measured: Mapping[Subset, float],
    parameters: Parameters | None = None,
) -> dict[str, Any]:
    """One model on one task, to explore: its probes, and what every strategy with enough evidence would keep.

    `kept` is the choice of `strategy`, which the page shows first; () if it is not known.
    """
    probed, parameters = scores.subnetworks, parameters or scores.parameters
    accuracy = dict(zip(probed.subsets, probed.accuracy, strict=True)) if probed else {}
    evidence = Evidence.from_scores(scores)

    def describe_choice(subset: Subset) -> dict[str, Any]:
        return {
            "k": len(subset),
            "kept": subset,
            "params": parameters.of(subset) if parameters else None,
            "share": parameters.ratios(subset)[0] if parameters else None,
            "probed": accuracy.get(subset),
            "measured": measured.get(subset),
            "behind": falls_behind_probe(accuracy.get(subset), measured.get(subset), metric.replace(" ", "_")),
        }

    methods, k = [], len(kept) or 1
    for method in STRATEGIES:
        choices = _choose_every_k(evidence, parameters, method)
        if kept and method == strategy:  # it may have had evidence or constraints that the scores do not hold
            choices[k] = kept
        if k in choices:
            methods.append({"name": method, "choices": [describe_choice(choices[size]) for size in sorted(choices)]})
    probes = [
        {
            "name": probe_name,
            "scores": probe.scores,
            "floors": {name: probe.floors[name] for name in FLOORS if name in probe.floors and _is_accuracy(probe)},
            **_band(probe.measures.get(probe.metric)),
        }
        for probe_name, probe in scores.probes.items()
    ]
    return {
        "name": name,
        "layers": scores.layers,
        "k": k,
        "kept": kept,
        "chosen": strategy,
        "metric": metric,
        "probed": "Bands: 95 % intervals over held-out examples.",
        "probes": probes,
        "methods": methods,
    }


def _is_accuracy(probe: ProbeResult) -> bool:
    """Whether the scores are in the unit of the floors."""
    return probe.metric == "accuracy"


def _band(curve: Any) -> dict[str, Any]:  # noqa: ANN401 - a Curve, where the scores have one
    return {"low": curve.low, "high": curve.high} if curve else {"low": (), "high": ()}


def _choose_every_k(evidence: Evidence, parameters: Parameters | None, strategy: str) -> dict[int, Subset]:
    """The strategy's choice for every number of layers; where it has none, the number is left out."""
    choices = {}
    for k in range(1, evidence.layers + 1):
        try:
            choices[k] = select(evidence, Constraints(parse_budget(k=k), parameters), strategy).kept
        except UserError:
            continue  # this strategy cannot choose k layers from the evidence
    return choices
