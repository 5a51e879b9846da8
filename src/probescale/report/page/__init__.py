"""report.html: one file that needs nothing else. The data stand in it as JSON, and become text, never markup."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from probescale.errors import UserError
from probescale.models.parameters import Parameters
from probescale.models.subsets import Subset
from probescale.probing.scores import ProbeScores
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES

Column = tuple[str, str, str]  # key of a row, title, kind: word, count, points, percent or plain
NEEDS = {"flow": "flow", "blocks": "subnetworks", "search": "subnetworks"}  # what a strategy reads, in the scores


class Page(NamedTuple):
    """What page.js shows; every list in the order in which it is shown."""

    title: str
    lead: Sequence[str]  # sentences
    cards: Sequence[tuple[str, str]]  # a figure, and what it is
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    bars: str  # what the bars in the chart are
    places: Sequence[Mapping[str, Any]]  # a model on a task, to explore
    notes: Sequence[str]
    record: Sequence[tuple[str, str]]
    changed: Mapping[str, Any] | None = None  # what became worse


def render(page: Page) -> str:
    parts = files("probescale.report.page")
    text = parts.joinpath("page.html").read_text(encoding="utf-8")
    # JSON inside of HTML: a < must not be able to end the script.
    data = json.dumps(page._asdict(), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    script = parts.joinpath("page.js").read_text(encoding="utf-8")
    for mark, content in {
        "/*HASH*/": f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",  # no other script is run
        "/*STYLE*/": parts.joinpath("page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": script,
        "/*DATA*/": data,  # last: it may contain the other marks
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
    """One model on one task: the probes, and what every method that has what it needs would keep."""
    probed = scores.subnetworks
    expected = dict(zip(probed.subsets, probed.accuracy, strict=True)) if probed else {}
    evidence = Evidence.from_scores(scores)
    if STRATEGIES[strategy].reads == "trials":  # at this size alone
        evidence = replace(evidence, trials={kept: 0.0})
    methods = [
        {"name": one, "choices": found}
        for one, known in STRATEGIES.items()
        if known.reads in ("nothing", "relevance")
        or getattr(scores, NEEDS.get(known.reads, "none"), None)
        or (known.reads == "trials" and evidence.trials)
        if (found := _choices(evidence, parameters or scores.parameters, one, expected, measured))
    ]
    probes = [
        {"name": one, "scores": probe.scores, **_band(probe.measures.get(probe.metric))}
        for one, probe in scores.probes.items()
    ]
    return {
        "name": name,
        "layers": scores.layers,
        "k": len(kept),
        "chosen": strategy,
        "metric": metric,
        "how": "what a probe at its end reaches before any training",
        "probed": "Bands: 95 % over held-out examples.",
        "probes": probes,
        "methods": methods,
    }


def _band(curve: Any) -> dict[str, Any]:  # noqa: ANN401 - a Curve, where the scores have one
    return {"low": curve.low, "high": curve.high} if curve else {"low": (), "high": ()}


def _choices(
    evidence: Evidence,
    parameters: Parameters | None,
    strategy: str,
    expected: Mapping[Subset, float],
    measured: Mapping[Subset, float],
) -> list[dict[str, Any]]:
    """For every number of layers; those that the method cannot choose are left out."""
    found = []
    for k in range(1, evidence.layers + 1):
        try:
            one = select(evidence, Constraints(parse_budget(k=k), parameters), strategy)
        except UserError:
            continue  # not probed, or nothing to choose by
        found.append(
            {
                "k": k,
                "kept": one.kept,
                "params": one.params,
                "share": one.ratio_total,
                "expected": expected.get(one.kept),
                "measured": measured.get(one.kept),
            }
        )
    return found
