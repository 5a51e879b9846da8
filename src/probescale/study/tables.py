"""Tables of a study: its plan, its progress and its results."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

from rich.table import Table as RichTable

from probescale.config import OtherModel
from probescale.models.subsets import format_layers
from probescale.recovery.result import ORIGINAL
from probescale.report.table import Table, format_duration
from probescale.study.cells import Cell, Study
from probescale.study.planning import StudyEstimate
from probescale.study.results import ResultRow, Results
from probescale.study.scheduling import Progress
from probescale.tasks.metrics import METRICS
from probescale.utils.files import format_size

OPTIONAL = ("k", "of layers", "of total", "spread", "parameters")  # columns that a narrow terminal does without
SHOWN_JOBS = 8  # in the live table


def progress_line(progress: Progress) -> str:
    """How many jobs are done, running and waiting."""
    failed = f", {len(progress.failed)} failed" if progress.failed else ""
    running = f"; running: {', '.join(progress.running)}" if progress.running else ""
    return f"{len(progress.done)} done{failed}, {len(progress.running)} running, {len(progress.waiting)} left{running}"


def progress_table(progress: Progress, left: float | None) -> RichTable:
    """The running and failed jobs, and the seconds left as far as they are known."""
    time_left = "" if left is None else f", about {max(round(left / 60), 1)} min"
    title = progress_line(progress).partition(";")[0] + time_left
    table = RichTable(title=title, title_justify="left", box=None, show_header=False)
    for job in progress.running[:SHOWN_JOBS]:
        table.add_row("running", job)
    for job in progress.failed[-SHOWN_JOBS:]:
        table.add_row("failed", job, style="red")
    return table


def study_tables(results: Results) -> list[Table]:
    """One table per task, like Tables 1 to 3 of the paper: models one below the other, the original first."""
    tasks = dict.fromkeys(row.task for row in results.rows)
    return [_task_table(task, [row for row in results.rows if row.task == task]) for task in tasks]


def _task_table(task: str, rows: Sequence[ResultRow]) -> Table:
    metric = rows[0].metric.replace("_", " ")
    sizes = ("layers\nkept", "k", "parameters", "of\ntotal", "of\nlayers")
    header = ("model", "method", "budget", *sizes, metric, "spread", "retention", "speed")
    if published := any(row.published is not None for row in rows):
        header = (*header, "published\nas", "there")
    lines, strong = [], set()
    for group in group_seeds(rows):
        if group[0].is_subnetwork and is_best(group, rows):
            strong.add(len(lines))
        lines.append(_line(group) + (_published(group[0]) if published else ()))
    seeds = len({row.seed for row in rows})
    title = f"{task}: {metric}, mean and standard deviation of {seeds} seed{'s' * (seeds > 1)}"
    return Table(title, header, tuple(lines), frozenset(strong), words=4, optional=OPTIONAL)


def group_seeds(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    """Rows grouped so that each group differs in the seed alone, in the order of the study."""
    groups: dict[tuple[str, str, str], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.budget, row.strategy), []).append(row)
    models = list(dict.fromkeys(row.model for row in rows))
    return sorted(groups.values(), key=lambda group: models.index(group[0].model))


def is_best(group: Sequence[ResultRow], rows: Sequence[ResultRow]) -> bool:
    """Whether no other strategy has a better mean for the same model and budget."""
    first, metric = group[0], METRICS[group[0].metric]
    rivals = [g for g in group_seeds(rows) if (g[0].model, g[0].budget) == (first.model, first.budget)]
    return all(metric.loss(_mean(rival), _mean(group)) <= 0 for rival in rivals)


def _mean(group: Sequence[ResultRow]) -> float:
    return mean(row.value for row in group)


def _line(group: Sequence[ResultRow]) -> tuple[str, ...]:
    first, show = group[0], METRICS[group[0].metric].show
    retention = [row.retention for row in group if row.retention is not None]
    return (
        first.model,
        first.strategy,
        first.budget,
        "; ".join(dict.fromkeys(format_layers(row.kept) for row in group)),
        " ".join(dict.fromkeys(str(row.k) for row in group)),
        f"{round(mean(row.params for row in group)):,}",
        f"{mean(row.ratio_total for row in group):.1%}",
        f"{mean(row.ratio_layers for row in group):.1%}",
        show(_mean(group)),
        show(stdev(row.value for row in group)) if len(group) > 1 else "",
        f"{mean(retention):.1%}" if retention else "",
        f"{mean(row.speedup for row in group):.1f}x",
    )


def _published(row: ResultRow) -> tuple[str, str]:
    return row.published_as, "" if row.published is None else METRICS[row.metric].show(row.published, 1)


def study_notes(results: Results) -> list[str]:
    """The cells without results, and why."""
    notes = [f"{name} failed: {why.strip().splitlines()[-1]}" for name, why in results.failed.items()]
    if results.missing:
        notes.append(f"{len(results.missing)} cells have not run yet: {', '.join(results.missing)}")
    return notes


def plan_table(study: Study, estimate: StudyEstimate | None) -> Table:
    """Every job with its estimated time, if it is known, each shared preparation before its cells."""

    def about(job: str) -> str:
        return format_duration(estimate.seconds[job]) if estimate else "?"

    rows = []
    for preparation, cells in study.preparations.items():
        one = cells[0]
        shared = (
            one.model,
            one.task,
            str(one.seed),
            ", ".join(("probing", ORIGINAL, *(other.called for other in one.config.other_models))),
            "",
            about(preparation),
            "; ".join(_published_rows(study, one, one.config.other_models)),
        )
        rows.append(shared)
        rows += [
            (
                cell.model,
                cell.task,
                str(cell.seed),
                cell.strategy,
                cell.budget,
                about(cell.name),
                _published_name(study, cell.strategy, cell.budget, cell.task),
            )
            for cell in cells
        ]
    header = ("model", "task", "seed", "what", "budget", "about", "published as")
    title = f"{len(study.cells)} cells, {len(study.preparations)} shared preparations"
    table = Table(title, header, tuple(rows), words=5)
    return table if study.settings.published else table.without("published as")


def _published_rows(study: Study, cell: Cell, others: Sequence[OtherModel]) -> list[str]:
    """The rows of a published table that a shared preparation repeats: the original and other models."""
    names = [_published_name(study, name, "", cell.task) for name in (ORIGINAL, *(other.called for other in others))]
    return [name for name in names if name]


def _published_name(study: Study, method: str, budget: str, task: str) -> str:
    rows = study.settings.published
    wanted = (row for row in rows if (row.method, str(row.budget or "")) == (method, budget) and task in row.values)
    return next((row.name for row in wanted), "")


def plan_notes(study: Study, estimate: StudyEstimate | None) -> list[str]:
    """Time and disk of the study as a whole."""
    if estimate is None:
        return ["Times are not known: a model or data set is not here, and the hub cannot be reached."]
    total, workers = sum(estimate.seconds.values()), study.settings.workers
    how = "one at a time" if workers == 1 else f"{workers} at a time, if there are enough cores"
    return [
        f"about {format_duration(total / workers)} on this machine, {how}; {format_size(estimate.disk)} of disk",
        "Layers are selected when the study runs; the times assume the most layers that each budget allows.",
    ]
