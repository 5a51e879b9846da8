"""report.md of a run."""

from __future__ import annotations

from probescale.models.family import Family
from probescale.models.subsets import format_layers
from probescale.recovery.bias import Bias
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import RunResult
from probescale.report.escaping import escape_markdown, inline_code
from probescale.report.findings import RunFindings
from probescale.report.generation import generation_markdown
from probescale.report.ladder import ladder_table, wish_table
from probescale.report.phrases import describe_training, show_value
from probescale.report.probes import probe_notes
from probescale.report.regressions import bias_sentence, bias_table, regression_sentence, regression_table
from probescale.report.tables import comparison_table, layer_table
from probescale.report.usage import usage
from probescale.report.vectors import vectors_markdown
from probescale.report.verdict import verdict_markdown, verdict_rule
from probescale.selection.result import Selection
from probescale.tasks.task import Task


def run_report(task: Task, family: Family, findings: RunFindings) -> str:
    """The report as Markdown."""
    scores, selection, result = findings.scores, findings.selection, findings.result
    changed, bias = findings.regressions, findings.bias
    comparison = ladder_table(findings) if findings.ladder else comparison_table(result)
    layers = layer_table(scores, selection.kept)
    return "\n\n".join(
        [
            f"# ProbeScale: {task.name}",
            *verdict_markdown(findings),
            _summary(selection, result),
            f"## {escape_markdown(comparison.title)}",
            comparison.markdown(),
            *(["## Which one to take", wish_table(findings.ladder).markdown()] if findings.ladder else []),
            f"{describe_training(result)} "
            "Parameters include embeddings, layers and head; "
            "\"of total\" is their share of the original's, \"of layers\" that of the layers alone. "
            "Speed: how many times as fast as the original, on the machine of this run. "
            "Intervals are 95 % over the dev examples; another training seed can change a figure as well.",
            f"## {layers.title}",
            layers.markdown(),
            "![Probe scores over layers](probes.svg)",
            _how(task, findings),
            *(_worse(changed) if changed else []),
            *(_alike(bias) if bias else []),
            *generation_markdown(findings),
            *vectors_markdown(findings),
            "## How to use it",
            usage(task, family, _model_folder(findings)),
            "## How to reproduce it",
            _record(result),
        ]
    ) + "\n"  # fmt: skip


def _model_folder(findings: RunFindings) -> str:
    rung = findings.ladder.find(findings.ladder.answer) if findings.ladder else None
    return rung.folder if rung else "model"


def _worse(changed: Regressions) -> list[str]:
    return ["## What became worse", regression_sentence(changed), regression_table(changed).markdown()]


def _alike(bias: Bias) -> list[str]:
    table = bias_table(bias)
    return [f"## {table.title}", escape_markdown(bias_sentence(bias)), table.markdown()]


def _summary(selection: Selection, result: RunResult) -> str:
    small = result.subnetwork
    return (
        f"Layers {format_layers(selection.kept)} were kept and {format_layers(selection.dropped) or 'none'} dropped "
        f"({selection.strategy}, budget {selection.budget}). The subnetwork has {small.params:,} of "
        f"{result.original.params:,} parameters ({small.ratio_total:.1%}); on {escape_markdown(result.split)}, "
        f"{result.metric.replace('_', ' ')} is {show_value(result, small.value, 2)}."
    )


def _how(task: Task, findings: RunFindings) -> str:
    selection = findings.selection
    lines = [f"- {verdict_rule(findings.result)}", *(f"- {line}" for line in probe_notes(findings.scores))]
    lines.append(
        f"- Relevance is the weighted sum of the probes (Eq. 1); the kept layers sum to {selection.score:.4f}. "
        f"{findings.dev_sentence}"
    )
    if selection.reason:
        lines.append(f"- Why these layers: {selection.reason}")
    if selection.certainty:
        lines.append(f"- How certain the choice of layers is: {selection.certainty.sentence()}")
    if pieces := findings.result.subnetwork.pieces:
        lines.append(f"- {pieces.sentence()}")
    if task.repeats:
        lines.append(
            f"- {task.repeats:,} training rows were removed: they repeat or contradict another row, or are in dev."
        )
    if findings.contradictions:
        lines.append(f"- {escape_markdown(findings.contradictions)}")
    return "\n".join(lines)


def _record(result: RunResult) -> str:
    provenance = result.provenance
    versions = ", ".join(f"{name} {number}" for name, number in provenance["versions"].items())
    data = ", ".join(f"{name} `{sha[:16]}`" for name, sha in provenance["data_sha256"].items())
    return "\n".join(
        [
            f"- command: {inline_code(provenance['command'])} (the settings with all defaults are in config.yaml)",
            f"- model: {inline_code(provenance['model'])}, weights sha256 `{provenance['model_sha256'][:16]}`",
            f"- data sha256: {data}",
            f"- seed: {provenance['seed']}",
            f"- versions: {versions}",
        ]
    )
