"""Tables of a run, a selection, a search for the smallest model, and a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from probescale.models.subsets import format_layers
from probescale.probing.scores import ProbeScores
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.report.table import Table, draw_levels, format_interval
from probescale.selection.calibration import Calibration
from probescale.selection.result import Selection


def layer_table(scores: ProbeScores, kept: Sequence[int] = ()) -> Table:
    """Every layer's probe scores and relevance, and whether it is kept."""
    bars = draw_levels(scores.relevance, min(scores.relevance), max(scores.relevance))
    header = (
        "layer",
        *(f"{name} (w={probe.weight:.3g})" for name, probe in scores.probes.items()),
        "relevance",
        "",
        "kept",
    )
    rows = []
    for layer in range(1, scores.layers + 1):
        value = scores.relevance[layer - 1]
        marks = _marks(scores, layer)
        cells = (f"{probe.scores[layer - 1]:.4f}{marks[name]}" for name, probe in scores.probes.items())
        rows.append((str(layer), *cells, f"{value:.4f}", bars[layer - 1], "yes" if layer in kept else ""))
    if not kept:
        header, rows = header[:-1], [row[:-1] for row in rows]
    chosen = frozenset(layer - 1 for layer in kept)
    return Table("Probe scores by layer", header, tuple(rows), chosen)


def _marks(scores: ProbeScores, layer: int) -> dict[str, str]:
    """A star for every probe that did not converge at this layer."""
    return {n: "" if p.converged is None or p.converged[layer - 1] else "*" for n, p in scores.probes.items()}


def comparison_table(result: RunResult) -> Table:
    """The original, the subnetwork and the compared strategies: sizes and metrics."""
    metric = result.metric.replace("_", " ")
    header = ("model", "layers\nkept", "parameters", "of\ntotal", "of\nlayers", metric, "95%\ninterval", "retention")
    rows = [_model_row(ORIGINAL, result.original), _model_row("ProbeScale", result.subnetwork)]
    rows += [_model_row(name, model) for name, model in result.compared.items()]
    title = f"{result.task}: {metric} on {result.split}, {result.examples:,} examples; ProbeScale: {result.strategy}"
    return Table(title, header, tuple(rows), frozenset({1}), words=2)


def _model_row(name: str, model: EvaluatedModel) -> tuple[str, ...]:
    return (
        name,
        format_layers(model.kept),
        f"{model.params:,}",
        f"{model.ratio_total:.1%}",
        f"{model.ratio_layers:.1%}",
        f"{100 * model.value:.2f}",
        format_interval(*(f"{100 * end:.1f}" for end in model.interval)),
        "" if model.retention is None else f"{model.retention:.1%}",
    )


def selection_table(selection: Selection) -> Table:
    """One selection, as facts."""
    rows = [
        ("strategy", selection.strategy),
        ("budget", selection.budget),
        ("kept", f"{format_layers(selection.kept)}  (k={selection.k})"),
        ("dropped", format_layers(selection.dropped) or "none"),
        ("score", f"{selection.score:.4f}"),
    ]
    if selection.reason:
        rows.append(("why", selection.reason))
    if selection.certainty:
        rows.append(("certainty", selection.certainty.sentence()))
    if selection.params is not None and selection.params_original is not None:
        share = f"{selection.ratio_total:.1%} of all, {selection.ratio_layers:.1%} of the layers"
        rows.append(("parameters", f"{selection.params:,} of {selection.params_original:,} ({share})"))
    return Table("Selection", ("", ""), tuple(rows), words=2)


def search_table(search: SmallestSearch) -> Table:
    """Every subnetwork that the search trained, in that order."""
    rows = [
        (
            format_layers(step.kept),
            f"{step.params:,}",
            "" if step.expected is None else f"{100 * step.expected:.2f}",
            f"{100 * step.value:.2f}",
            "" if step.retention is None else f"{step.retention:.1%}",
            "yes" if step.enough else "no",
        )
        for step in search.trials
    ]
    chosen = frozenset(number for number, step in enumerate(search.trials) if step.kept == search.answer)
    header = ("layers kept", "parameters", "expected", "measured", "retention", "enough")
    title = f"The smallest model that keeps {100 * search.keep:.4g} % of the original's metric"
    return Table(title, header, tuple(rows), chosen)


def search_notes(search: SmallestSearch) -> list[str]:
    """The outcome of the search in sentences."""
    answer = next(step for step in search.trials if step.kept == search.answer)
    original = search.trials[0]
    if answer is original:
        first = f"No smaller subnetwork keeps {search.keep:.1%}: the model is the original, fine-tuned."
    else:
        share = "" if answer.retention is None else f" {answer.retention:.1%}"
        first = (
            f"Layers {format_layers(answer.kept)} keep{share} with {answer.params / original.params:.1%} of the "
            f"parameters; {len(search.trials)} trainings."
        )
    notes = [first]
    if not search.bracketed:
        notes.append("The next smaller candidate was not trained.")
    if search.held_out_error:
        errors = ", ".join(
            f"{name.replace('_', '-')} {100 * error:.2f}" for name, error in search.held_out_error.items()
        )
        notes.append(f"Held-out error of the scaling laws fitted to probe accuracy, in points: {errors}.")
    return notes


def calibration_table(calibration: Calibration) -> Table:
    """Learned probe weights, and their error next to simpler weights."""
    rows = [(name, f"{weight:.4f}") for name, weight in calibration.weights.items()]
    errors = {
        "these weights": calibration.error,
        "equal weights": calibration.error_uniform,
        "a constant prediction": calibration.error_mean,
    }
    rows += [(f"error with {name}", f"{100 * error:.2f}") for name, error in errors.items()]
    if not calibration.informative:
        rows.append(("note", "no probe rises with the measured values: the weights are equal"))
    title = f"Weights from {calibration.points} measured subnetworks; errors are leave-one-out, in points"
    return Table(title, ("probe", "weight"), tuple(rows))
