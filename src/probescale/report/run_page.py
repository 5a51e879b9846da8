"""The page of one run: what was asked, what was kept, what it costs, can I trust it."""

from __future__ import annotations

from typing import Any

from probescale.models.parameters import Parameters
from probescale.models.subsets import format_layers
from probescale.probing.scores import ProbeScores
from probescale.recovery.bias import Bias
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import EvaluatedModel, RunResult
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


def run_page(
    scores: ProbeScores,
    selection: Selection,
    result: RunResult,
    parameters: Parameters | None = None,
    changed: Regressions | None = None,
    bias: Bias | None = None,
) -> str:
    """`parameters`: of the model that layers are cut from, as small as it was made beside them."""
    metric = result.metric.replace("_", " ")
    models = {"original": result.original, f"ProbeScale ({result.strategy})": result.subnetwork, **result.compared}
    chosen = result.subnetwork
    measured = {one.kept: one.value for one in models.values()}
    return render(
        Page(
            title=f"ProbeScale: {result.task}",
            lead=_lead(selection, result, metric),
            cards=[
                (
                    f"{result.original.params / chosen.params:.1f} times",
                    "fewer parameters, embeddings and head counted",
                ),
                ("" if result.retention is None else f"{result.retention:.1%}", f"of the original's {metric} kept"),
                (f"{100 * chosen.value:.2f}", f"{metric} on {result.split} ({result.examples:,} examples)"),
                (format_layers(selection.kept), f"layers kept of {scores.layers}"),
            ],
            rows=[_row(name, one, answer=one is chosen) for name, one in models.items()],
            columns=[(key, title or metric, kind) for key, title, kind in COLUMNS],
            bars="95 % over resampled dev examples.",
            places=[explorer_entry(result.task, scores, result.strategy, selection.kept, metric, measured, parameters)],
            changed=_changed(changed),
            notes=[*_notes(scores, selection, result), *([bias_sentence(bias)] if bias else [])],
            record=_record(result),
        )
    )


def _lead(selection: Selection, result: RunResult, metric: str) -> list[str]:
    small, whole = result.subnetwork, result.original
    rivals = {name: one for name, one in result.compared.items() if one.params <= small.params * 1.01}
    best = max(rivals, key=lambda name: rivals[name].value, default=None)
    said = [
        f"Asked for: {selection.budget}. Kept: layers {format_layers(selection.kept)}, {small.params:,} of "
        f"{whole.params:,} parameters. After training back, {metric} is {100 * small.value:.2f}; the original reaches "
        f"{100 * whole.value:.2f} with the same data."
    ]
    if best is not None:
        other = rivals[best]
        near = small.interval[0] <= other.value <= small.interval[1]
        how = "no clear difference" if near else "clearly less" if other.value < small.value else "clearly more"
        said.append(f"The best of the compared methods at this size, {best}, reaches {100 * other.value:.2f}: {how}.")
    return said


def _row(name: str, one: EvaluatedModel, *, answer: bool) -> dict[str, Any]:
    return {
        "model": "",
        "method": name,
        "budget": "",
        "layers": format_layers(one.kept),
        "params": one.params,
        "total": one.ratio_total,
        "of_layers": one.ratio_layers,
        "value": one.value,
        "low": one.interval[0],
        "high": one.interval[1],
        "interval": f"{100 * one.interval[0]:.1f} to {100 * one.interval[1]:.1f}",
        "retention": one.retention,
        "speed": f"{one.speedup:.2f}x",
        "answer": answer,
    }


def _changed(changed: Regressions | None) -> dict[str, Any] | None:
    if changed is None:
        return None
    return {"sentence": regression_sentence(changed), **changed.model_dump(mode="json", include={"slices", "examples"})}


def _notes(scores: ProbeScores, selection: Selection, result: RunResult) -> list[str]:
    notes = [
        f"Every model was fine-tuned with the same recipe: {result.recipe}.",
        f"The figures are of {result.split}, which took no part in probing, selection or training. Intervals come from "
        "resampling its examples; another training seed can move a figure as well.",
        "The cut was proved before training: it answers as the original with the other layers skipped. The saved "
        "folder was loaded by stock transformers in a fresh process, and answers the same.",
    ]
    if selection.reason:
        notes.append(f"Why these layers. {selection.reason}")
    if selection.certainty:
        notes.append(f"How sure the choice of layers is. {selection.certainty.sentence()}")
    return [*notes, *(note.replace("`", "") for note in probe_notes(scores))]


def _record(result: RunResult) -> list[tuple[str, str]]:
    made = result.provenance
    return [
        ("command", str(made["command"])),
        ("model", f"{made['model']} (sha256 {made['model_sha256'][:16]})"),
        *((f"data, {name}", f"sha256 {sha[:16]}") for name, sha in made["data_sha256"].items()),
        ("seed", str(made["seed"])),
        ("versions", ", ".join(f"{name} {number}" for name, number in made["versions"].items())),
    ]
