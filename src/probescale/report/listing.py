"""What `probescale list` and `probescale cache` print."""

from __future__ import annotations

import time

from probescale.models.families import FAMILIES
from probescale.probing.probes import PROBES
from probescale.report.table import Table
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.builtin import builtin_tasks
from probescale.tasks.metrics import METRICS
from probescale.tasks.structural import PROPERTIES
from probescale.utils.cache import cache_dir, list_entries
from probescale.utils.files import format_size
from probescale.utils.registry import first_doc_line


def listing_table(what: str) -> Table:
    """All built-in tasks, properties, probes, strategies, families or metrics."""
    tables = {"tasks": _tasks, "properties": _properties, "probes": _probes, "strategies": _strategies}
    return (tables | {"families": _families, "metrics": _metrics})[what]()


def cache_table() -> Table:
    """Every entry of the cache, the last used first, and their total size."""
    cached = list_entries()
    rows = [(e.name.split("/")[-1], e.about, format_size(e.size), _age(time.time() - e.used)) for e in cached]
    title = f"{cache_dir()}: {len(cached)} entries, {format_size(sum(e.size for e in cached))}"
    return Table(title, ("entry", "what", "size", "last used"), tuple(rows), words=2)


def _age(seconds: float) -> str:
    """How long ago something was.

    >>> _age(90), _age(200_000)
    ('1 minutes ago', '2 days ago')
    """
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "just now"


def _properties() -> Table:
    rows = tuple((name, entry.help, "CoNLL-U" if entry.columns else "any text") for name, entry in PROPERTIES.items())
    return Table("Properties", ("property", "what the probe predicts", "from"), rows, words=3)


def _probes() -> Table:
    rows = tuple((name, first_doc_line(kind)) for name, kind in PROBES.items())
    return Table("Probes", ("probe", "is"), rows, words=2)


def _tasks() -> Table:
    rows = [
        (
            name,
            task["metric"],
            ", ".join(f"{p['name']} (w={p.get('weight', 1 / len(task['probes'])):.2g})" for p in task["probes"]),
            task["train"]["source"],
        )
        for name, task in builtin_tasks().items()
    ]
    return Table("Tasks", ("task", "metric", "probes", "data"), tuple(rows), words=4)


def _strategies() -> Table:
    return Table(
        "Strategies", ("strategy", "keeps"), tuple((name, entry.help) for name, entry in STRATEGIES.items()), words=2
    )


def _metrics() -> Table:
    rows = tuple((name, entry.kind, entry.help) for name, entry in METRICS.items())
    return Table("Metrics", ("metric", "kind of task", "is"), rows, words=3)


def _families() -> Table:
    rows = [
        (f.name, ", ".join(f.model_types), f.pooling, f.classifier_class.removeprefix("AutoModelFor"))
        for f in FAMILIES.values()
    ]
    return Table(
        "Families",
        ("family", "model_type in config.json", "pooling of sentence probes", "head"),
        tuple(rows),
        words=4,
    )
