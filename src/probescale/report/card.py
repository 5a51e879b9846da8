"""The model card, model/README.md: metadata for the hub, use, results and limits."""

from __future__ import annotations

import re

from probescale.models.loading import LoadedModel
from probescale.models.subsets import format_layers
from probescale.recovery.recipe import ORIGINAL_AS_IT_IS
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.report.escaping import escape_markdown, inline_code
from probescale.report.findings import RunFindings
from probescale.report.generation import KNOWN, generation_markdown
from probescale.report.ladder import ladder_table
from probescale.report.phrases import has_retention
from probescale.report.regressions import bias_sentence, regression_sentence
from probescale.report.table import Table
from probescale.report.tables import measured_cells
from probescale.report.usage import usage
from probescale.report.vectors import vectors_markdown
from probescale.report.verdict import verdict_markdown
from probescale.tasks.metrics import METRICS
from probescale.tasks.task import Task
from probescale.utils.sources import is_local, local_path

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
CITE = """```bibtex
@misc{das-probescale,
  title = {ProbeScale: Probing Analysis to Optimize Neural Scaling Laws for Efficient Small Language Model Inference},
  author = {Sourav Das},
}
```"""


def model_card(parent: LoadedModel, task: Task, findings: RunFindings) -> str:
    """The card as Markdown, with the hub's front matter."""
    chosen, result, changed, bias = findings.selection, findings.result, findings.regressions, findings.bias
    from huggingface_hub import EvalResult, ModelCardData

    small, original, metric = result.subnetwork, result.original, result.metric
    evaluation = EvalResult(
        task_type=task.kind.pipeline_tag,
        dataset_type=task.name,
        dataset_name=task.name,
        dataset_split=task.dev_split,
        metric_type=metric,
        metric_value=round(small.value, 4),
    )
    data = ModelCardData(
        library_name=task.kind.library,
        pipeline_tag=task.kind.pipeline_tag,
        base_model=parent.source if HUB_NAME.fullmatch(parent.source) and not is_local(parent.source) else None,
        license=read_licence(parent.source),
        metrics=[metric],
        tags=["probescale", "layer-pruning"],
        model_name=f"{task.name}, {small.params / 1e6:.1f}M parameters",
        eval_results=[evaluation],
    )
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {task.name}: {small.params / 1e6:.1f}M parameters",
        *verdict_markdown(findings),
        f"A subnetwork of {inline_code(parent.source)}: layers {format_layers(chosen.kept)} of {parent.layers}, "
        f"{original.params / small.params:.1f} times fewer parameters (embeddings and head included), fine-tuned for "
        f"{task.name}. Made with ProbeScale.",
        "## Use",
        "`model` is the path of this folder, or its name on the hub.",
        usage(task, parent.family),
        "## Results",
        (ladder_table(findings) if findings.ladder else _table(result)).markdown(),
        f"{metric} on {escape_markdown(result.split)}, {result.examples:,} examples. Intervals: 95 %, over "
        "these examples; another training seed changes the figures as well. Speed: how many times as fast as the "
        "original, both timed alternately on the machine that trained this model.",
        *generation_markdown(findings),
        *vectors_markdown(findings),
        "## How it was made",
        f"Budget: {chosen.budget}. Layers were selected by `{chosen.strategy}`. Recipe: {result.recipe}.",
        *([chosen.reason] if chosen.reason else []),
        *([chosen.certainty.sentence()] if chosen.certainty else []),
        *_thresholds(result),
        "## Limits",
        _limits(result),
        *([KNOWN] if findings.generation else []),
        *([regression_sentence(changed)] if changed else []),
        *([escape_markdown(bias_sentence(bias))] if bias else []),
        "## Cite",
        CITE,
    ]
    return "\n\n".join(parts) + "\n"


def _limits(result: RunResult) -> str:
    only = "It was trained for one task and one kind of text."
    return only if result.subnetwork.second is not None else f"{only} It was not evaluated on other texts."


def _thresholds(result: RunResult) -> list[str]:
    """From which probability on labels are given, where texts can have several."""
    chosen = result.subnetwork.thresholds
    if not chosen:
        return []
    table = Table("", ("label", "threshold"), tuple((name, f"{share:.2f}") for name, share in chosen.items()))
    return [
        "Thresholds, chosen on a part of train that nothing learned from. They have been moved into the output layer: "
        "a label is given where its score is above 0.5, which stands for these probabilities:",
        table.markdown(),
    ]


def read_licence(source: str) -> str | None:
    """The licence in the parent's model card; None if it names none."""
    folder = local_path(source, field="model.source") if is_local(source) or source.startswith("pypi:") else None
    card = folder / "README.md" if folder and folder.is_dir() else None
    if card is None or not card.is_file():
        return None
    with card.open(encoding="utf-8", errors="replace") as file:
        head = file.read(20_000).split("---")
    match = re.search(r"^license:\s*([\w.-]+)\s*$", head[1], re.MULTILINE) if len(head) > 2 else None
    return match[1] if match else None


def _table(result: RunResult) -> Table:
    metric = result.metric.replace("_", " ")
    header = ("model", "parameters", metric, "95% interval", "retention", "speed")
    original = "original" if ORIGINAL_AS_IT_IS in result.recipe else "original, fine-tuned on the labels"
    models: dict[str, EvaluatedModel | Alternative] = {original: result.original, "this model": result.subnetwork}
    models |= result.other_models
    models |= {other.name: other for other in result.alternatives}
    rows = tuple(
        (name, f"{model.params:,}", *measured_cells(model, METRICS[result.metric])) for name, model in models.items()
    )
    table = Table("", header, rows, frozenset({1}))
    return table if has_retention(result) else table.without("retention")
