"""`probescale list`: what can be named in a configuration."""

from __future__ import annotations

from probescale.models.families import FAMILIES
from probescale.report.table import Table
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.builtin import builtin_tasks
from probescale.tasks.metrics import METRICS


def listing(what: str) -> Table:
    """A table of all tasks, strategies, families or metrics."""
    return {"tasks": _tasks, "strategies": _strategies, "families": _families, "metrics": _metrics}[what]()


def _tasks() -> Table:
    rows = [
        (
            name,
            task["metric"],
            ", ".join(f"{p['name']} (w={p['weight']})" for p in task["probes"]),
            task["train"]["source"],
        )
        for name, task in builtin_tasks().items()
    ]
    return Table("Tasks", ("task", "metric", "probes", "data"), tuple(rows), words=4)


def _strategies() -> Table:
    return Table("Strategies", ("strategy", "keeps"), _helps(STRATEGIES), words=2)


def _metrics() -> Table:
    return Table("Metrics", ("metric", "is"), _helps(METRICS), words=2)


def _families() -> Table:
    rows = [
        (f.name, ", ".join(f.model_types), f.pooling, f.classifier.removeprefix("AutoModelFor"))
        for f in FAMILIES.values()
    ]
    return Table(
        "Families",
        ("family", "model_type in config.json", "sentence probes look at", "head"),
        tuple(rows),
        words=4,
    )


def _helps(registry: dict) -> tuple[tuple[str, str], ...]:
    return tuple((name, (function.__doc__ or "").splitlines()[0]) for name, function in registry.items())
