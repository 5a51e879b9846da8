"""The verdict on a run, in sentences: what was saved, what it costs, and whether a simpler model would do."""

from __future__ import annotations

from collections.abc import Iterable

from probescale.recovery.regressions import Regressions
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.report.escaping import escape_markdown
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.metrics import METRICS, Metric

FAILED = "This model did not learn the task."  # heading of the warning in pages and cards
ONE_TRAINING = "one training each: other seeds may say otherwise"  # a run never names a winner
ELSEWHERE = "the machine that trained it"  # for files, which are read on other machines


def run_summary(result: RunResult, regressions: Regressions | None = None) -> list[str]:
    """The closing lines of a run: its failure if it has one, the measured figures, the simple alternatives."""
    measured = measured_sentence(result, regressions)
    lines = (result.failure, measured, comparison_sentence(result), alternatives_sentence(result))
    return [line for line in lines if line]


def verdict_markdown(result: RunResult, regressions: Regressions | None = None) -> list[str]:
    """The first paragraphs of a Markdown page: a warning after a failure, the figures, the simple alternatives."""
    measured = measured_sentence(result, regressions, machine=ELSEWHERE)
    sentences = (measured, comparison_sentence(result), alternatives_sentence(result))
    lines = [escape_markdown(line) for line in sentences if line]
    return [f"> **Warning: {FAILED}** {escape_markdown(result.failure)}", *lines] if result.failure else lines


def summary_sentence(
    result: RunResult, regressions: Regressions | None = None, *, machine: str = "this machine"
) -> str:
    """The result in one sentence for everybody; a run that failed says so first."""
    measured = measured_sentence(result, regressions, machine=machine)
    return f"{result.failure} {measured}" if result.failure else measured


def measured_sentence(
    result: RunResult, regressions: Regressions | None = None, *, machine: str = "this machine"
) -> str:
    """Size, metric and speed beside the original's, and how many examples changed. `machine`: where it was timed."""
    small, original = result.subnetwork, result.original
    sentence = f"{_size(small, original)}, {_quality(result)}, {_speed(small.speedup)} on {machine}"
    if regressions and not result.failure:
        sentence += (
            f"; of {regressions.slices[0].rows:,} examples, {regressions.newly_wrong:,} that were right are now wrong "
            f"and {regressions.newly_right:,} that were wrong are now right"
        )
    return f"{sentence}."


def comparison_sentence(result: RunResult) -> str:
    """Whether other layers did better in their one training; empty after a failure, and where none was compared."""
    small, metric = result.subnetwork, METRICS[result.metric]
    others = {name: model for name, model in result.compared.items() if name in STRATEGIES and model.kept != small.kept}
    if result.failure or not others:
        return ""
    ahead = {name: model for name, model in others.items() if metric.loss(small.value, model.value) < 0}
    if not ahead:
        return f"No other strategy in the table did better than {result.strategy}."
    best = min(ahead.values(), key=lambda model: metric.loss(0, model.value))
    names = " and ".join(name for name, model in ahead.items() if model.kept == best.kept)  # the same layers are one
    values = f"{result.metric.replace('_', ' ')} {100 * best.value:.1f} against {100 * small.value:.1f}"
    if small.interval[0] <= best.value <= small.interval[1]:
        return f"The layers of {names} are as good here ({values}, within the 95 % interval)."
    return f"The layers of {names} did better here ({values}), in {ONE_TRAINING}."


def alternatives_sentence(result: RunResult) -> str:
    """Whether a simple alternative is as good as the subnetwork; empty where none was trained."""
    if not result.alternatives:
        return ""
    small, metric = result.subnetwork, METRICS[result.metric]
    if result.failure:
        best = _best(result.alternatives, metric)
        value = f"{result.metric.replace('_', ' ')} {100 * best.value:.1f}"
        return f"The best simple alternative, {best.name}, reaches {value} with {format_count(best.params)} parameters."
    enough = [other for other in result.alternatives if _as_good(other, small, metric)]
    smaller = [other for other in result.alternatives if other.params <= small.params]
    if both := [other for other in enough if other in smaller]:
        best = _best(both, metric)
        sizes = f"{format_count(best.params)} parameters instead of {format_count(small.params)}"
        return f"{_good_enough(best, result)} with {sizes}: you may not need this model."
    if not enough:
        best = _best(result.alternatives, metric)
        return f"The best simple alternative, {best.name}, {_falls_short(best, result)}."
    best = _best(enough, metric)
    sentence = f"{_good_enough(best, result)}, but larger: {format_count(best.params)} parameters instead of "
    sentence += f"{format_count(small.params)}"
    if best.speedup > small.speedup:
        sentence += f"; it is faster, {_speed(best.speedup)} as the original"
    if smaller:
        best = _best(smaller, metric)
        sentence += f". The best smaller alternative, {best.name}, {_falls_short(best, result)}"
    return f"{sentence}."


def has_retention(result: RunResult) -> bool:
    """Whether there are shares of the original's metric to show; there are none after a failure."""
    models = (result.original, result.subnetwork, *result.compared.values(), *result.alternatives)
    return result.failure is None and any(model.retention is not None for model in models)


def format_count(number: int) -> str:
    """A number of parameters, short.

    >>> format_count(33_360_000), format_count(1_540_000_000), format_count(12_345)
    ('33.4M', '1.5B', '12,345')
    """
    if number >= 1e9:
        return f"{number / 1e9:.1f}B"
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number:,}"


def _size(small: EvaluatedModel, original: EvaluatedModel) -> str:
    size = f"{format_count(small.params)} parameters"
    if small.params == original.params:
        return f"{size}, as many as the original"
    times = original.params / small.params
    less = f"{times:.1f} times smaller" if times >= 1.05 else f"{1 - 1 / times:.1%} less".replace("%", " %")
    return f"{size} instead of {format_count(original.params)} ({less})"


def _quality(result: RunResult) -> str:
    name, lower = result.metric.replace("_", " "), _lower_is_better(result)
    values = f"{100 * result.subnetwork.value:.1f} instead of {100 * result.original.value:.1f}"
    # "90 % of the distance" would sound like less distance, and a negative share like nothing at all.
    if result.failure or lower or result.retention is None or result.retention < 0:
        return f"{name} {values}" + (f" ({lower})" if lower else "")
    return f"{100 * result.retention:.1f} % of the {name} ({values})"


def _lower_is_better(result: RunResult) -> str:
    """A remark for metrics of which less is better; empty for the others."""
    return "lower is better" if METRICS[result.metric].lower_is_better else ""


def _speed(speedup: float) -> str:
    """How fast, beside the original.

    >>> _speed(4.81), _speed(1.02), _speed(812.4)
    ('4.8 times as fast', 'just as fast', '812 times as fast')
    """
    if 0.95 <= speedup < 1.05:
        return "just as fast"
    return f"{speedup:.1f} times as fast" if speedup < 100 else f"{speedup:,.0f} times as fast"


def _best(alternatives: Iterable[Alternative], metric: Metric) -> Alternative:
    return min(alternatives, key=lambda other: metric.loss(0, other.value))


def _as_good(other: Alternative, small: EvaluatedModel, metric: Metric) -> bool:
    """Not worse than the worse end of the subnetwork's 95 % interval."""
    return metric.loss(small.interval[metric.lower_is_better], other.value) <= 0


def _good_enough(other: Alternative, result: RunResult) -> str:
    small = result.subnetwork
    within = small.interval[0] <= other.value <= small.interval[1]
    remarks = (
        f"{result.metric.replace('_', ' ')} {100 * other.value:.1f} against {100 * small.value:.1f}",
        _lower_is_better(result),
        "within the 95 % interval" if within else ONE_TRAINING,
    )
    how = "is as good" if within else "did better"
    return f"A simple alternative, {other.name}, {how} here ({', '.join(filter(None, remarks))})"


def _falls_short(other: Alternative, result: RunResult) -> str:
    lost = 100 * METRICS[result.metric].loss(result.subnetwork.value, other.value)
    lower = _lower_is_better(result)
    how = f"more, and {lower}" if lower else "less"
    return f"reaches {result.metric.replace('_', ' ')} {100 * other.value:.1f}: {lost:.1f} points {how}"
