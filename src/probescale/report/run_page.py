"""report.html of one run: its budget, the kept layers, what they cost, and how far to trust the result."""

from __future__ import annotations

from typing import Any

from probescale.models.subsets import format_layers
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.report.probes import probe_notes
from probescale.report.regressions import bias_sentence, regression_sentence
from probescale.report.verdict import ELSEWHERE, FAILED, alternatives_sentence, has_retention, measured_sentence
from probescale.tasks.metrics import METRICS

COLUMNS: tuple[Column, ...] = (
    ("method", "model", "word"),
    ("layers", "layers kept", "word"),
    ("params", "parameters", "count"),
    ("total", "of total", "percent"),
    ("of_layers", "of layers", "percent"),
    ("value", "", "points"),
    ("interval", "95 % interval", "plain"),
    ("retention", "retention", "percent"),
    ("speed", "speed", "times"),
)


def run_page(findings: RunFindings) -> str:
    """The page as HTML."""
    scores, selection, result, parameters = findings.scores, findings.selection, findings.result, findings.parameters
    bias, metric = findings.bias, result.metric.replace("_", " ")
    models = {ORIGINAL: result.original, f"ProbeScale ({result.strategy})": result.subnetwork, **result.compared}
    measured = {model.kept: model.value for model in models.values()}
    rows = [_row(name, model, answer=model is result.subnetwork) for name, model in models.items()]
    rows += [_alternative_row(other, result.original.params) for other in result.alternatives]
    shown = [column for column in COLUMNS if column[0] != "retention" or has_retention(result)]
    return render(
        Page(
            title=f"ProbeScale: {result.task}",
            warning=(FAILED, result.failure) if result.failure else (),
            lead=_lead(findings),
            cards=_cards(findings),
            rows=rows,
            columns=[(key, title or metric, kind) for key, title, kind in shown],
            bars="95 %, over the dev examples.",
            places=[explorer_entry(result.task, scores, result.strategy, selection.kept, metric, measured, parameters)],
            changed=_changed(findings.regressions),
            notes=[*_notes(findings), *([bias_sentence(bias)] if bias else [])],
            record=_record(result),
        )
    )


def _lead(findings: RunFindings) -> list[str]:
    """The result in a few sentences: what was gained and lost, whether a simple alternative would do, what was kept."""
    selection, result = findings.selection, findings.result
    small, original, metric = result.subnetwork, result.original, METRICS[result.metric]
    kept = (
        f"Budget: {selection.budget}. Kept: layers {format_layers(selection.kept)}, {small.params:,} of "
        f"{original.params:,} parameters."
    )
    rivals = {
        name: other
        for name, other in result.compared.items()
        if other.params <= small.params * 1.01 and other.kept != small.kept
    }
    if rivals:
        best = min(rivals, key=lambda name: metric.loss(small.value, rivals[name].value))
        other = rivals[best]
        near = small.interval[0] <= other.value <= small.interval[1]
        how = "within the 95 % interval" if near else "one training each"
        kept += f" The best compared method at this size, {best}, reaches {100 * other.value:.2f} ({how})."
    measured = measured_sentence(result, findings.regressions, machine=ELSEWHERE)
    return [sentence for sentence in (measured, alternatives_sentence(result), kept) if sentence]


def _cards(findings: RunFindings) -> list[tuple[str, str]]:
    """The figures to see first. There is no share of the metric where none can be named, or after a failure."""
    result, metric = findings.result, findings.result.metric.replace("_", " ")
    small, retention = result.subnetwork, result.retention if has_retention(result) else None
    share = f"of the original's {metric} kept"
    if METRICS[result.metric].lower_is_better:
        share = f"retention: the original's {metric} divided by this model's"
    return [
        (f"{result.original.params / small.params:.1f} times", "fewer parameters, embeddings and head included"),
        *([] if retention is None else [(f"{retention:.1%}", share)]),
        (f"{100 * small.value:.2f}", f"{metric} on {result.split} ({result.examples:,} examples)"),
        (format_layers(findings.selection.kept), f"layers kept of {findings.scores.layers}"),
    ]


def _row(name: str, model: EvaluatedModel, *, answer: bool) -> dict[str, Any]:
    return {
        "method": name,
        "layers": format_layers(model.kept),
        "total": model.ratio_total,
        "of_layers": model.ratio_layers,
        "answer": answer,
        **_measured(model),
    }


def _alternative_row(other: Alternative, original_params: int) -> dict[str, Any]:
    return {
        "method": other.name,
        "layers": None,
        "total": other.params / original_params,
        "of_layers": None,
        "answer": False,
        "simple": True,  # drawn as a square
        **_measured(other),
    }


def _measured(model: EvaluatedModel | Alternative) -> dict[str, Any]:
    return {
        "model": "",
        "budget": "",
        "params": model.params,
        "value": model.value,
        "low": model.interval[0],
        "high": model.interval[1],
        "interval": f"{100 * model.interval[0]:.1f} to {100 * model.interval[1]:.1f}",
        "retention": model.retention,
        "speed": model.speedup,
    }


def _changed(changed: Regressions | None) -> dict[str, Any] | None:
    if changed is None:
        return None
    return {"sentence": regression_sentence(changed), **changed.model_dump(mode="json", include={"slices", "examples"})}


def _notes(findings: RunFindings) -> list[str]:
    selection, result = findings.selection, findings.result
    notes = [
        f"Recipe: {result.recipe}. All subnetworks were trained with it; the original learns from labels only.",
        f"The figures are from {result.split}. {findings.dev_sentence} Intervals are 95 % over its "
        "examples; another training seed can change a figure as well.",
        "The cut was proved before training: its outputs equal those of the original with the other layers skipped. "
        "The saved folder was loaded by stock transformers in a fresh process, and gives the same outputs.",
    ]
    if result.alternatives:
        notes.append(
            "The simple alternatives learn from the same training data. Their parameters are all weights that have to "
            "be kept, those of features and embeddings included."
        )
    if findings.contradictions:
        notes.append(findings.contradictions)
    if selection.reason:
        notes.append(f"Why these layers: {selection.reason}")
    if selection.certainty:
        notes.append(f"How certain the choice of layers is: {selection.certainty.sentence()}")
    return [*notes, *(note.replace("`", "") for note in probe_notes(findings.scores))]


def _record(result: RunResult) -> list[tuple[str, str]]:
    provenance = result.provenance
    return [
        ("command", str(provenance["command"])),
        ("model", f"{provenance['model']} (sha256 {provenance['model_sha256'][:16]})"),
        *((f"data, {name}", f"sha256 {sha[:16]}") for name, sha in provenance["data_sha256"].items()),
        ("seed", str(provenance["seed"])),
        ("versions", ", ".join(f"{name} {number}" for name, number in provenance["versions"].items())),
    ]
