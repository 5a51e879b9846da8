"""report.html of one run: ship it or not, what was kept, what it costs, and how far to trust the result."""

from __future__ import annotations

from typing import Any

from probescale.config import REFERENCES
from probescale.models.subsets import format_layers
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import ORIGINAL, Alternative, EvaluatedModel, RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.report.expectation import is_far_step
from probescale.report.findings import RunFindings
from probescale.report.generation import generation_page
from probescale.report.ladder import ladder_page
from probescale.report.page import Column, Page, explorer_entry, render
from probescale.report.phrases import describe_training, format_percent, format_spread, has_retention, name_metric
from probescale.report.probes import probe_notes
from probescale.report.regressions import bias_sentence, regression_sentence
from probescale.report.run_cards import run_cards
from probescale.report.tables import search_notes
from probescale.report.vectors import vectors_page
from probescale.report.verdict import ELSEWHERE, decide, verdict_rule, wanted_share
from probescale.tasks.metrics import METRICS, Metric

RETENTION_RULE = (
    "Less {0} is better. Retention is the original's {0} divided by this model's: a model that needs a quarter more "
    "keeps 80 %."
)
COLUMNS = (
    Column("method", "model", "word"),
    Column("layers", "layers kept", "word"),
    Column("params", "parameters", "count", "shares"),
    Column("value", "", "points", "interval"),
    Column("retention", "retention", "percent"),
    Column("speed", "speed", "times", "spread"),
)


def run_page(findings: RunFindings) -> str:
    """The page as HTML."""
    scores, selection, result, parameters = findings.scores, findings.selection, findings.result, findings.parameters
    bias, metric, verdict = findings.bias, name_metric(result), decide(findings, machine=ELSEWHERE)
    models = {ORIGINAL: result.original, f"ProbeScale ({result.strategy})": result.subnetwork, **result.compared}
    if findings.ladder:
        rungs = {rung.name: rung.model for rung in findings.ladder.alive}
        models = {ORIGINAL: result.original, **rungs}
    measured = {model.kept: model.value for model in models.values()}
    models |= result.other_models
    shown_as = METRICS[result.metric]
    answer = findings.ladder.answer if findings.ladder else f"ProbeScale ({result.strategy})"
    rows = [_row(name, model, shown_as, answer=name == answer) for name, model in models.items()]
    rows += [_alternative_row(other, result.original.params, shown_as) for other in result.alternatives]
    shown = [column for column in COLUMNS if column.key != "retention" or has_retention(result)]
    return render(
        Page(
            title=f"ProbeScale: {result.task}",
            verdict=(verdict.decision, verdict.heading, verdict.reasons),
            lead=[*verdict.details, _kept(findings)],
            cards=run_cards(findings),
            rows=rows,
            columns=[column._replace(title=column.title or metric) for column in shown],
            bars="95 %, over the dev examples.",
            places=[explorer_entry(result.task, scores, result.strategy, selection.kept, metric, measured, parameters)],
            metric=metric,
            factor=shown_as.factor,
            line=_line(result),
            search=_search(findings.search) if findings.search else None,
            ladder=ladder_page(findings),
            changed=_changed(findings.regressions),
            more=generation_page(findings) or vectors_page(findings),
            notes=[*_notes(findings), *([bias_sentence(bias)] if bias else [])],
            record=_record(result),
        )
    )


def _kept(findings: RunFindings) -> str:
    selection, result = findings.selection, findings.result
    return (
        f"Budget: {selection.budget}. Kept: layers {format_layers(selection.kept)} of {findings.scores.layers}, "
        f"{result.subnetwork.params:,} of {result.original.params:,} parameters."
    )


def _line(result: RunResult) -> tuple[float, str] | None:
    """The metric that is enough, to be drawn among the models; none where nothing was learned."""
    share = wanted_share(result)
    if not has_retention(result) or result.original.value <= 0:
        return None
    value = METRICS[result.metric].keeping(share, result.original.value)
    return value, f"{format_percent(share)} of the original"


def _row(name: str, model: EvaluatedModel, metric: Metric, *, answer: bool) -> dict[str, Any]:
    return {
        "method": name,
        "layers": format_layers(model.kept),
        "total": model.ratio_total,
        "of_layers": model.ratio_layers,
        "shares": f"{_share(model.ratio_total)} of all, {_share(model.ratio_layers)} of layers",
        "answer": answer,
        **_measured(model, metric),
    }


def _alternative_row(other: Alternative, original_params: int, metric: Metric) -> dict[str, Any]:
    share = other.params / original_params
    return {
        "method": other.name,
        "layers": None,
        "total": share,
        "of_layers": None,
        "shares": f"{_share(share)} of all",
        "answer": False,
        "simple": True,  # drawn as a square
        **_measured(other, metric),
    }


def _share(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _measured(model: EvaluatedModel | Alternative, metric: Metric) -> dict[str, Any]:
    return {
        "model": "",
        "budget": "",
        "params": model.params,
        "value": model.value,
        "low": model.interval[0],
        "high": model.interval[1],
        "interval": f"{metric.show(model.interval[0], 1)} to {metric.show(model.interval[1], 1)}",
        "retention": model.retention,
        "speed": model.speedup,
        "spread": format_spread(model.spread) + (", busy" if model.spread.busy else "") if model.spread else "",
    }


def _search(search: SmallestSearch) -> dict[str, Any]:
    """What was asked, and every size that was trained."""
    steps = [
        {
            "size": "original" if step is search.trials[0] else step.budget,
            "layers": format_layers(step.kept),
            "params": step.params,
            "expected": step.expected,
            "measured": step.value,
            "far": is_far_step(step),
            "retention": step.retention,
            "enough": step.enough,
            "answer": step.budget == search.answer,
        }
        for step in search.trials
    ]
    asked = f"Asked: the smallest model that keeps {format_percent(search.keep)} of the original's metric."
    return {"sentence": " ".join((asked, *search_notes(search))), "steps": steps}


def _changed(changed: Regressions | None) -> dict[str, Any] | None:
    if changed is None:
        return None
    return {"sentence": regression_sentence(changed), **changed.model_dump(mode="json", include={"slices", "examples"})}


def _notes(findings: RunFindings) -> list[str]:
    selection, result = findings.selection, findings.result
    notes = [
        verdict_rule(result),
        describe_training(result),
        f"The figures are from {result.split}. {findings.dev_sentence} Intervals are 95 % over its "
        "examples; another training seed can change a figure as well.",
        "Speed: how many times as fast as the original, both timed alternately on the machine of the run; below it, "
        "the middle 80 % of single measurements.",
        "The cut was proved before training: its outputs equal those of the original with the other layers skipped. "
        "The saved folder was loaded by stock transformers in a fresh process, and gives the same outputs.",
    ]
    if METRICS[result.metric].lower_is_better:
        notes.append(RETENTION_RULE.format(name_metric(result)))
    own = [name for name in REFERENCES.values() if name in result.other_models]
    if own:
        notes.append(f"{' and '.join(own)}: as many tokens, with the same recipe, and without the original's answers.")
    if names := " and ".join(name for name in result.other_models if name not in own):
        notes.append(
            f"{names}: another model, fine-tuned on the same labels with the recipe of the original (one that was "
            "fine-tuned for them before is only measured). Its layers are its own."
        )
    notes += [f"{name} has no row: {why}." for name, why in result.failed_models.items()]
    if result.alternatives:
        notes.append(
            "The simple alternatives learn from the same training data. Their parameters are all weights that have to "
            "be kept, those of features and embeddings included."
        )
    if pieces := result.subnetwork.pieces:
        notes.append(pieces.sentence())
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
