"""Results of probing, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.report.table import Table, draw_levels, format_interval
from probescale.report.tables import layer_table

BAR = 8  # characters
EIGHTHS = " ▏▎▍▌▋▊▉█"
# measure -> heading; accuracy and its interval come first
COLUMNS = {
    "f1": "F1",
    "selectivity": "select-\nivity",
    "information": "inform.\nbits",
    "logit_lens": "raw lens,\nbits",
    "compression": "compr-\nession",
}


def probe_tables(scores: ProbeScores) -> Iterator[Table]:
    """All tables of a probing: each property, the parts of its layers, and how relevance adds up."""
    for name, probe in scores.probes.items():
        yield probe_table(name, probe)
        if parts := parts_table(name, probe):
            yield parts
    if len(scores.probes) > 1 or scores.contribution == "marginal":
        yield layer_table(scores)


def probe_table(name: str, probe: ProbeResult) -> Table:
    """One probe at every layer, below its baselines."""
    accuracy = probe.measures["accuracy"]
    others = [measure for measure in COLUMNS if measure in probe.measures]
    low = min([*accuracy.values, *probe.floors.values()])
    high = max([*accuracy.values, *probe.floors.values()])
    rows = []
    for floor, value in probe.floors.items():
        extra = probe.embeddings if floor == "embeddings" and probe.embeddings else {}
        rows.append((floor, _number(value), "", _bar(value, low, high), *(_number(extra.get(m)) for m in others)))
    for i, value in enumerate(accuracy.values):
        star = "" if probe.converged is None or probe.converged[i] else "*"
        ends = format_interval(f"{accuracy.low[i]:.3f}", f"{accuracy.high[i]:.3f}")
        cells = (_number(probe.measures[measure].values[i]) for measure in others)
        rows.append((str(i + 1), f"{value:.4f}{star}", ends, _bar(value, low, high), *cells))
    header = ["layer", "R2" if probe.target == "number" else "accuracy", "95%\ninterval", ""]
    header += ["entity\nF1" if measure == "f1" and probe.spans else COLUMNS[measure] for measure in others]
    if accuracy.spread:
        header.append("seed\nspread")
        rows = [(*row, "") for row in rows[: len(probe.floors)]] + [
            (*row, f"±{spread:.4f}") for row, spread in zip(rows[len(probe.floors) :], accuracy.spread, strict=True)
        ]
    if probe.random_weights:
        header.append("random\nweights")
        random = [f"{value:.4f}" for value in probe.random_weights.values]
        rows = [(*row, cell) for row, cell in zip(rows, [""] * len(probe.floors) + random, strict=True)]
    best = max(range(len(accuracy.values)), key=accuracy.values.__getitem__)
    strong = frozenset({len(probe.floors) + best})
    return Table(f"{name}: a probe at every layer", tuple(header), tuple(rows), strong)


def parts_table(name: str, probe: ProbeResult) -> Table | None:
    """Accuracy inside the layers: after attention, after the feed-forward part, and of single heads."""
    columns = {"attention": probe.attention, "feed-forward": probe.feed_forward}
    shown = {part: curve.values for part, curve in columns.items() if curve}
    if not shown and not probe.heads:
        return None
    header, rows = ["layer", *shown], []
    if probe.heads:
        header += ["heads", "best head", "its number"]
    for i in range(len(probe.scores)):
        cells = [f"{values[i]:.4f}" for values in shown.values()]
        if probe.heads:
            heads = probe.heads[i]
            best = max(range(len(heads)), key=heads.__getitem__)
            cells += [draw_levels(heads, min(map(min, probe.heads)), max(map(max, probe.heads)))]
            cells += [f"{heads[best]:.4f}", str(best + 1)]
        rows.append((str(i + 1), *cells))
    return Table(f"{name}: accuracy inside the layers", tuple(header), tuple(rows))


def probe_notes(scores: ProbeScores) -> list[str]:
    """How each probe was scored, one sentence each."""
    return [f"`{name}`: {_note(probe)}" for name, probe in scores.probes.items()]


def _note(probe: ProbeResult) -> str:
    if probe.train is None:
        return "scores as given."
    kind = {"class": "classes", "multi": "labels"}.get(probe.target)
    classes = f", {probe.classes} {kind}" if kind else ""
    metric = "R2" if probe.target == "number" and probe.metric == "accuracy" else probe.metric
    parts = [
        f"{metric} of a probe on {probe.pooling} states, {probe.train:,} training and {probe.validation:,} "
        f"validation rows inside train{classes}"
    ]
    if probe.floors:
        floors = ", ".join(f"{name} {value:.4f}" for name, value in probe.floors.items())
        parts.append(f"baselines: {floors}")
    if probe.bits:
        parts.append("bits per token: " + ", ".join(f"{name} {value:.2f}" for name, value in probe.bits.items()))
    if probe.gaps and probe.steps:
        left = [layer for layer, ok in enumerate(probe.converged or (), 1) if not ok]
        ended = f"* not converged at layer {', '.join(map(str, left))}" if left else "all converged"
        parts.append(f"{ended} (at most {max(probe.steps)} steps; loss within {max(probe.gaps):.0e} of its minimum)")
    if probe.seeds > 1:
        parts.append(
            f"mean of {probe.seeds} draws of subsample and split; the interval is over the held-out rows of one draw, "
            "the spread is the standard deviation between draws"
        )
    return "; ".join(parts) + "."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _bar(value: float, low: float, high: float) -> str:
    """A horizontal bar of up to eight characters.

    >>> _bar(0.5, 0.0, 1.0), _bar(0.0, 0.0, 1.0)
    ('████    ', '        ')
    """
    eighths = round((value - low) / (high - low) * BAR * 8) if high > low else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR)
