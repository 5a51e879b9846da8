"""Tables and figures of exports, benchmarks and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from probescale.deploy.bench import BenchResult
from probescale.deploy.formats import EXPORTERS, ExportRecord
from probescale.deploy.predict import Prediction
from probescale.report.figure import saved_figure
from probescale.report.table import Table, format_duration
from probescale.tasks.kinds import Kind
from probescale.tasks.metrics import METRICS
from probescale.utils.files import format_size
from probescale.utils.registry import first_doc_line

SHOWN = 60  # characters of a text in a table
TABLE_ROWS = 1000  # predictions in one table
CHANGED = 0.01  # of a metric: more than another machine's rounding makes


def export_lines(record: ExportRecord, to: str, out: Path) -> list[str]:
    """What an export wrote, and how it compares with the PyTorch model."""
    kind = "8-bit weights" if record.int8 else "float32"
    lines = [
        f"{out}: {to.upper()}, {kind}, any batch and any length up to {record.longest} tokens",
        f"float32 outputs within {record.largest_difference:.1e} of the PyTorch model's",
    ]
    if record.value is not None and record.value_pytorch is not None and record.metric:
        show = METRICS[record.metric].show
        lines.append(f"{record.metric} on dev: {show(record.value)}; PyTorch: {show(record.value_pytorch)}")
        if record.value_recorded is not None and abs(record.value_recorded - record.value_pytorch) > CHANGED:
            recorded = show(record.value_recorded)
            lines.append(f"note: the run recorded {recorded} for this model; its files have changed since")
    else:
        lines.append(f"the task's metric was not evaluated: {record.unmeasured}")
    return lines


def exporters_table() -> Table:
    """The formats that `export --to` accepts."""
    rows = tuple((name, first_doc_line(exporter)) for name, exporter in EXPORTERS.items())
    return Table("Exporters", ("exporter", "writes"), rows, words=2)


def bench_tables(result: BenchResult) -> list[Table]:
    """One table per shape of batch, and a last one with the sizes."""
    tables = []
    for size, length in dict.fromkeys((row.batch_size, row.length) for row in result.rows):
        rows = [
            (
                row.model,
                row.format,
                f"{row.median:.2f}",
                f"{row.p95:.2f}",
                f"{row.per_second:,.0f}",
                format_duration(row.per_million),
                f"{row.speedup:.1f}x",
            )
            for row in result.rows
            if (row.batch_size, row.length) == (size, length)
        ]
        title = f"batch {size}, {length} tokens, {result.threads} threads: ms per batch, {result.passes} passes in turn"
        header = ("model", "format", "median", "p95", "texts/s", "a million", "speed")
        tables.append(Table(title, header, tuple(rows), words=2))
    sizes = [
        (name, format_size(size) if size else "", format_size(result.memory[name]))
        for name, size in result.size.items()
    ]
    tables.append(Table("size", ("model", "on disk", "memory"), tuple(sizes)))
    return tables


def bench_sentence(result: BenchResult) -> str:
    """How long a million texts take with the first and the fastest model, for the largest shape."""
    size, length = max((row.batch_size, row.length) for row in result.rows)
    rows = [row for row in result.rows if (row.batch_size, row.length) == (size, length)]
    first, best = rows[0], min(rows, key=lambda row: row.median)
    sentence = f"A million texts of {length} tokens take {format_duration(first.per_million)} with {first.model}"
    return sentence + ("." if best is first else f", {format_duration(best.per_million)} with {best.model}.")


def write_bench_figure(result: BenchResult, stem: Path) -> list[Path]:
    """Draw the speed relative to the first model, one group of bars per shape; returns the files."""
    shapes = list(dict.fromkeys((row.batch_size, row.length) for row in result.rows))
    models = list(dict.fromkeys(row.model for row in result.rows))
    with saved_figure(stem, (1.8 + 1.5 * len(shapes), 3.6)) as (figure, paths):
        axes = figure.subplots()
        width = 0.8 / len(models)
        for number, model in enumerate(models):
            rows = [row for row in result.rows if row.model == model]
            places = [shapes.index((row.batch_size, row.length)) + width * number for row in rows]
            axes.bar(places, [row.speedup for row in rows], width, label=f"{Path(model).name} ({rows[0].format})")
        middle = 0.4 - width / 2
        names = [f"batch {size}\n{length} tokens" for size, length in shapes]
        axes.set_xticks([number + middle for number in range(len(shapes))], names)
        axes.set_ylabel("times as fast as the first")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return paths


def prediction_tables(predictions: Iterable[Prediction], kind: Kind) -> Iterator[Table]:
    """Tables of at most a thousand predictions each, as they come."""
    rest = iter(predictions)
    while part := list(islice(rest, TABLE_ROWS)):
        rows = [(str(each.number), _shorten(each.text), *_answer_cells(each)) for each in part]
        yield Table("", ("line", "text", kind.answers[0], ""), tuple(rows), words=3)


def _answer_cells(prediction: Prediction) -> tuple[str, str]:
    """The answer and its probability; the fault where there is no answer."""
    if prediction.fault:
        return prediction.fault, ""
    if prediction.rendered is None:
        return "", ""
    probability = prediction.rendered.probability
    return prediction.rendered.shown, "" if probability is None else f"{probability:.1%}"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
