"""report.html of one run: its budget, the kept layers, what they cost, and how far to trust the result."""

from __future__ import annotations

from typing import Any

from probescale.models.subsets import format_layers
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.report.probes import probe_notes
from probescale.report.regressions import bias_sentence, regression_sentence
from probescale.selection.result import Selection

COLUMNS: tuple[Column, ...] = (
    ("method", "model", "word"),
    ("layers", "layers kept", "word"),
    ("params", "parameters", "count"),
    ("total", "of total", "percent"),
    ("of_layers", "of layers", "percent"),
    ("value", "", "points"),
    ("interval", "95 % interval", "plain"),
    ("retention", "retention", "percent"),
    ("speed", "speed", "plain"),
)


def run_page(findings: RunFindings) -> str:
    """The page as HTML."""
    scores, selection, result, parameters = findings.scores, findings.selection, findings.result, findings.parameters
    changed, bias = findings.regressions, findings.bias
    metric = result.metric.replace("_", " ")
    models = {ORIGINAL: result.original, f"ProbeScale ({result.strategy})": result.subnetwork, **result.compared}
    chosen = result.subnetwork
    measured = {model.kept: model.value for model in models.values()}
    return render(
        Page(
            title=f"ProbeScale: {result.task}",
            lead=_lead(selection, result, metric),
            cards=[
                (
                    f"{result.original.params / chosen.params:.1f} times",
                    "fewer parameters, embeddings and head included",
                ),
                ("" if result.retention is None else f"{result.retention:.1%}", f"of the original's {metric} kept"),
                (f"{100 * chosen.value:.2f}", f"{metric} on {result.split} ({result.examples:,} examples)"),
                (format_layers(selection.kept), f"layers kept of {scores.layers}"),
            ],
            rows=[_row(name, model, answer=model is chosen) for name, model in models.items()],
            columns=[(key, title or metric, kind) for key, title, kind in COLUMNS],
            bars="95 %, from resampling the dev examples.",
            places=[explorer_entry(result.task, scores, result.strategy, selection.kept, metric, measured, parameters)],
            changed=_changed(changed),
            notes=[*_notes(findings), *([bias_sentence(bias)] if bias else [])],
            record=_record(result),
        )
    )


def _lead(selection: Selection, result: RunResult, metric: str) -> list[str]:
    """The result in one or two sentences."""
    small, original = result.subnetwork, result.original
    rivals = {name: other for name, other in result.compared.items() if other.params <= small.params * 1.01}
    best = max(rivals, key=lambda name: rivals[name].value, default=None)
    sentences = [
        f"Budget: {selection.budget}. Kept: layers {format_layers(selection.kept)}, {small.params:,} of "
        f"{original.params:,} parameters. After fine-tuning, {metric} is {100 * small.value:.2f}; the original reaches "
        f"{100 * original.value:.2f} with the same data."
    ]
    if best is not None:
        other = rivals[best]
        near = small.interval[0] <= other.value <= small.interval[1]
        how = "no clear difference" if near else "clearly less" if other.value < small.value else "clearly more"
        sentences.append(f"The best compared method at this size, {best}, reaches {100 * other.value:.2f}: {how}.")
    return sentences


def _row(name: str, model: EvaluatedModel, *, answer: bool) -> dict[str, Any]:
    return {
        "model": "",
        "method": name,
        "budget": "",
        "layers": format_layers(model.kept),
        "params": model.params,
        "total": model.ratio_total,
        "of_layers": model.ratio_layers,
        "value": model.value,
        "low": model.interval[0],
        "high": model.interval[1],
        "interval": f"{100 * model.interval[0]:.1f} to {100 * model.interval[1]:.1f}",
        "retention": model.retention,
        "speed": f"{model.speedup:.2f}x",
        "answer": answer,
    }


def _changed(changed: Regressions | None) -> dict[str, Any] | None:
    if changed is None:
        return None
    return {"sentence": regression_sentence(changed), **changed.model_dump(mode="json", include={"slices", "examples"})}


def _notes(findings: RunFindings) -> list[str]:
    selection, result = findings.selection, findings.result
    notes = [
        f"Recipe: {result.recipe}. All subnetworks were trained with it; the original learns from labels only.",
        f"The figures are from {result.split}. {findings.dev_sentence} Intervals come from resampling its "
        "examples; another training seed can change a figure as well.",
        "The cut was proved before training: its outputs equal those of the original with the other layers skipped. "
        "The saved folder was loaded by stock transformers in a fresh process, and gives the same outputs.",
    ]
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
