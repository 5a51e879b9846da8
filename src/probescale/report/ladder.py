"""A ladder for people: size against quality, the law through it, and which rung to take for a wish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from probescale.models.subsets import format_layers
from probescale.recovery.ladder import LadderResult, LadderRung
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_count, format_megabytes, format_percent, name_metric
from probescale.report.table import Table, format_interval, format_share, format_speed
from probescale.tasks.metrics import METRICS, Metric

LAW_POINTS = 40  # of the curve on the page
SHARES = (0.99, 0.98, 0.97, 0.95, 0.9)  # of the original's metric, that people ask for
ROUND = tuple(digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5))  # megabytes, milliseconds


class Wish(NamedTuple):
    """What somebody wants of a model, the rung to take for it, and why."""

    wish: str
    rung: str  # empty where none is to be had
    reason: str


def ladder_table(findings: RunFindings) -> Table:
    """Every size beside the original and the simpler alternatives."""
    result, ladder, metric = findings.result, findings.ladder, METRICS[findings.result.metric]
    assert ladder
    header = ("size", "layers\nkept", "parameters", "on disk", name_metric(result).replace(" ", "\n"), "95%\ninterval",
              "kept", "interval\nof kept", "speed", "cut from")  # fmt: skip
    rows = [(ORIGINAL, *_cells(ladder.original, metric), "")]
    for rung in ladder.rungs:
        cells = _cells(rung.model, metric, rung.retention_interval)
        rows.append((rung.name, *cells, rung.source if rung.alive else "did not learn"))
    for name, other in (*result.other_models.items(), *((one.name, one) for one in result.alternatives)):
        rows.append((name, *_cells(other, metric), ""))
    names = [row[0] for row in rows]
    strong = frozenset({names.index(ladder.answer)} if ladder.answer else ())
    title = f"{result.task}: every size, {name_metric(result)} on {result.split}, {result.examples:,} examples"
    optional = ("95% interval", "on disk", "layers kept")
    return Table(title, header, tuple(rows), strong, words=2, optional=optional)


def _cells(
    model: EvaluatedModel | Alternative, metric: Metric, sure: tuple[float, float] | None = None
) -> tuple[str, ...]:
    evaluated = isinstance(model, EvaluatedModel)
    return (
        format_layers(model.kept) if evaluated else "-",
        f"{model.params:,}",
        format_megabytes(model.megabytes) if evaluated and model.megabytes is not None else "",
        metric.show(model.value),
        format_interval(*(metric.show(end, 1) for end in model.interval)),
        "" if model.retention is None else format_share(model.retention),
        "" if sure is None else format_interval(*(f"{100 * end:.1f}" for end in sure)),
        format_speed(model.speedup),
    )


def wish_table(ladder: LadderResult) -> Table:
    """Which rung to take for which wish."""
    rows = tuple((wish.wish, wish.rung or "none", wish.reason) for wish in list_wishes(ladder))
    return Table("Which one to take", ("wish", "take", "why"), rows, words=3)


def list_wishes(ladder: LadderResult) -> list[Wish]:
    """The rung to take for round shares, sizes and times, as far as these tell rungs apart."""
    has_shares = any(rung.model.retention is not None for rung in ladder.rungs)
    wishes = [_wish_share(ladder, share) for share in SHARES if has_shares]
    sizes = [rung.model.megabytes for rung in ladder.alive if rung.model.megabytes]
    for limit in _round_limits(sizes):
        wishes.append(_wish_limit(f"at most {limit:g} MB", ladder.within(megabytes=limit), _say_megabytes))
    for limit in _round_limits([rung.model.milliseconds for rung in ladder.alive]):
        words = f"at most {limit:g} ms per batch"
        wishes.append(_wish_limit(words, ladder.within(milliseconds=limit), _say_milliseconds))
    return wishes


def _wish_share(ladder: LadderResult, share: float) -> Wish:
    wish, rung = f"keep at least {format_percent(share)}", ladder.keeping(share)
    if rung:
        return Wish(wish, rung.name, f"the smallest that surely does: {describe_kept(rung)}")
    best = max(ladder.alive, key=lambda each: each.model.retention or 0.0, default=None)
    known = f"{best.name} keeps most: {describe_kept(best)}" if best else "no size learned the task"
    return Wish(wish, "", f"no size surely does; {known}")


def _wish_limit(wish: str, rung: LadderRung | None, say: Callable[[EvaluatedModel], str]) -> Wish:
    assert rung  # limits below the smallest rung are not listed
    return Wish(wish, rung.name, f"the largest that fits, with {say(rung.model)}; {describe_kept(rung)}")


def _say_megabytes(model: EvaluatedModel) -> str:
    return format_megabytes(model.megabytes or 0.0)


def _say_milliseconds(model: EvaluatedModel) -> str:
    return f"{model.milliseconds:.3g} ms"


def describe_kept(rung: LadderRung) -> str:
    """What a rung keeps, with its interval."""
    if rung.model.retention is None or rung.retention_interval is None:
        return "no share of the original's metric can be named"
    low, high = rung.retention_interval
    return f"{100 * rung.model.retention:.1f} % kept ({100 * low:.1f} to {100 * high:.1f} %)"


def _round_limits(values: Sequence[float]) -> list[float]:
    """Round numbers that at least one of the values, but not each, lies below; the smallest for every set of them.

    >>> _round_limits([60.0, 27.0, 13.0])
    [20.0, 50.0]
    """
    found: dict[int, float] = {}
    for limit in ROUND:
        below = sum(value <= limit for value in values)
        if 0 < below < len(values):
            found.setdefault(below, limit)
    return list(found.values())


def ladder_sentences(findings: RunFindings) -> list[str]:
    """Why this rung is recommended, which ones failed or were trained again, and the law; empty without a ladder."""
    ladder = findings.ladder
    if ladder is None:
        return []
    return [*filter(None, (_recommendation(ladder), *_troubles(ladder), law_sentence(findings)))]


def _recommendation(ladder: LadderResult) -> str:
    rung = ladder.find(ladder.answer)
    if rung is None:
        return "None of the sizes learned the task."
    sizes, wanted = ", ".join(each.name for each in ladder.rungs), format_percent(ladder.wanted)
    together = "Intervals hold for all sizes together, so that choosing among them does not flatter the chosen one."
    if rung.keeps(ladder.wanted):
        return f"{rung.name} is the smallest of {sizes} that surely keeps {wanted}: {describe_kept(rung)}. {together}"
    return f"None of {sizes} surely keeps {wanted}; these figures are of the largest, {rung.name}. {together}"


def _troubles(ladder: LadderResult) -> list[str]:
    """Rungs that failed or were trained again."""
    failed = [
        f"{rung.name} did not learn the task, also when it was trained again, and is not kept ({rung.model.failure})."
        for rung in ladder.rungs
        if not rung.alive
    ]
    again = [f"{rung.name} was trained again: {rung.model.retried}." for rung in ladder.alive if rung.model.retried]
    return [*failed, *again]


def law_sentence(findings: RunFindings) -> str:
    """The scaling law in words; empty where there is none."""
    ladder = findings.ladder
    law = ladder.law if ladder else None
    if law is None or ladder is None:
        return ""
    metric = name_metric(findings.result)
    if law.gain == 0:
        return f"Within these sizes, {metric} does not depend on the number of parameters."
    half = min(rung.model.params for rung in ladder.alive) / 2
    low, high = law.interval(half)
    return (
        f"Scaling law through {law.points} sizes: {metric} = {100 * law.asymptote:.1f} - {100 * law.gain:.1f} "
        f"(parameters / {format_count(round(law.smallest))})^-{law.exponent:.2f}, off by {100 * law.residual:.1f} "
        f"points on average. Half of the smallest, {format_count(round(half))} parameters, would be expected to reach "
        f"{100 * law.predict(half):.1f} ({100 * low:.1f} to {100 * high:.1f})."
    )


def ladder_page(findings: RunFindings) -> dict[str, Any] | None:
    """What the page shows of a ladder: every rung for a wish of one's own, the usual wishes, and the law as a curve."""
    ladder = findings.ladder
    if ladder is None:
        return None
    rungs = [
        {
            "name": rung.name,
            "megabytes": rung.model.megabytes,
            "milliseconds": rung.model.milliseconds,
            "low": None if rung.retention_interval is None else rung.retention_interval[0],
            "kept": describe_kept(rung),
        }
        for rung in ladder.alive
    ]
    sizes = [ladder.original.params, *(rung.model.params for rung in ladder.alive)]
    return {
        "sentences": ladder_sentences(findings),
        "rungs": rungs,
        "wanted": ladder.wanted,
        "answer": ladder.answer,
        "wishes": [tuple(wish) for wish in list_wishes(ladder)],
        "law": [
            (size, ladder.law.predict(size), *ladder.law.interval(size))
            for size in np.geomspace(min(sizes), max(sizes), LAW_POINTS).tolist()
        ]
        if ladder.law
        else [],
    }
