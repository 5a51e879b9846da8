"""Tables of a run, a selection, a search for the smallest model, and a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from probescale.models.subsets import format_layers
from probescale.probing.scores import ProbeScores
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.report.phrases import has_retention
from probescale.report.table import Table, draw_levels, format_interval, format_share, format_speed
from probescale.selection.calibration import Calibration
from probescale.selection.result import Selection
from probescale.tasks.metrics import METRICS, Metric


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
    """The original, the subnetwork, the compared strategies and the simple alternatives: sizes, metrics and speed."""
    metric = result.metric.replace("_", " ")
    narrow = metric.replace(" ", "\n").replace("accuracy", "accu-\nracy")  # the table fits 80 columns
    header = ("model", "layers\nkept", "parameters", "of\ntotal", "of\nlayers", narrow, "95%\ninterval",
              "reten-\ntion", "speed")  # fmt: skip
    shown = METRICS[result.metric]
    rows = [_model_row(ORIGINAL, result.original, shown), _model_row("ProbeScale", result.subnetwork, shown)]
    rows += [_model_row(name, model, shown) for name, model in (result.compared | result.other_models).items()]
    rows += [_alternative_row(other, result.original.params, shown) for other in result.alternatives]
    about = f'{metric} of "{result.positive}"' if result.positive else metric
    title = f"{result.task}: {about} on {result.split}, {result.examples:,} examples; ProbeScale: {result.strategy}"
    table = Table(title, header, tuple(rows), frozenset({1}), words=2, optional=("of layers", "of total"))
    return table if has_retention(result) else table.without("retention")


def measured_cells(model: EvaluatedModel | Alternative, metric: Metric) -> tuple[str, ...]:
    """The last columns of a model's row: metric, interval, retention and speed."""
    return (
        metric.show(model.value),
        format_interval(*(metric.show(end, 1) for end in model.interval)),
        "" if model.retention is None else f"{model.retention:.1%}",
        format_speed(model.speedup),
    )


def _model_row(name: str, model: EvaluatedModel, metric: Metric) -> tuple[str, ...]:
    sizes = (f"{model.params:,}", format_share(model.ratio_total), format_share(model.ratio_layers))
    return (name, format_layers(model.kept), *sizes, *measured_cells(model, metric))


def _alternative_row(other: Alternative, original_params: int, metric: Metric) -> tuple[str, ...]:
    share = format_share(other.params / original_params)
    return (other.name, "-", f"{other.params:,}", share, "-", *measured_cells(other, metric))


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
    """Every size that the search trained, in that order."""
    show = METRICS[search.metric].show
    rows = [
        (
            "original" if step is search.trials[0] else step.budget,
            format_layers(step.kept),
            f"{step.params:,}",
            "" if step.expected is None else show(step.expected),
            show(step.value),
            "" if step.retention is None else f"{step.retention:.1%}",
            "yes" if step.enough else "no",
        )
        for step in search.trials
    ]
    chosen = frozenset(number for number, step in enumerate(search.trials) if step.budget == search.answer)
    header = ("size", "layers kept", "parameters", "expected", "measured", "kept", "enough")
    title = (
        f"The smallest model that keeps {100 * search.keep:.4g} % of the original's metric, on {search.examples:,} "
        "held-out examples of train"
    )
    return Table(title, header, tuple(rows), chosen, optional=("layers kept",))


def search_notes(search: SmallestSearch) -> list[str]:
    """The outcome of the search in sentences."""
    answer = next(step for step in search.trials if step.budget == search.answer)
    original = search.trials[0]
    if answer is original:
        first = f"No smaller model keeps {search.keep:.1%}: the model is the original, fine-tuned."
    else:
        share = "" if answer.retention is None else f" {answer.retention:.1%}"
        first = (
            f"{answer.budget} smaller keeps{share} there with {answer.params / original.params:.1%} of the parameters; "
            f"{len(search.trials)} trainings."
        )
    notes = [first, f"Decided on {search.examples:,} examples of train that nothing learned from; dev decided nothing."]
    if not search.bracketed:
        notes.append("The next smaller size was not trained.")
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
    if calibration.fitted_to:
        rows.append(("fitted to", f"{calibration.fitted_to}: judge what these weights choose on other rows"))
    title = f"Weights from {calibration.points} measured subnetworks; errors are leave-one-out, in points"
    return Table(title, ("probe", "weight"), tuple(rows))
