"""What else one could use: the layers of other strategies, and models that are simpler."""

from __future__ import annotations

from collections.abc import Iterable

from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.report.phrases import describe_speed, format_count, name_metric, remark_lower, show_value
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.metrics import METRICS, Metric

ONE_TRAINING = "one training each: other seeds may say otherwise"  # a run never names a winner


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
    values = f"{name_metric(result)} {show_value(result, best.value)} against {show_value(result, small.value)}"
    if small.interval[0] <= best.value <= small.interval[1]:
        return f"The layers of {names} are as good here ({values}, within the 95 % interval)."
    return f"The layers of {names} did better here ({values}), in {ONE_TRAINING}."


def simpler_is_enough(result: RunResult) -> bool:
    """Whether a simple alternative is as good as the subnetwork, and not larger."""
    return bool(_replacements(result))


def better_than_the_original(result: RunResult) -> str:
    """Which simpler model is clearly better than the original, for which a share of its metric says little; or empty.

    Simpler models learn from the same labels; one beyond the original's 95 % interval shows that it was trained too
    little, or badly.
    """
    metric, original = METRICS[result.metric], result.original
    limit = original.interval[0 if metric.lower_is_better else 1]
    rivals = {"the small model": result.subnetwork.value, **{one.name: one.value for one in result.alternatives}}
    best = min(rivals, key=lambda name: metric.loss(0, rivals[name]))
    if metric.loss(limit, rivals[best]) >= 0:
        return ""
    return (
        f"{best} reaches {show_value(result, rivals[best])}, it {show_value(result, original.value)}; allow more time"
    )


def alternatives_sentence(result: RunResult) -> str:
    """Whether a simple alternative is as good as the subnetwork; empty where none was trained."""
    if not result.alternatives:
        return ""
    small, metric = result.subnetwork, METRICS[result.metric]
    if result.failure:
        best = _best(result.alternatives, metric)
        value = f"{name_metric(result)} {show_value(result, best.value)}"
        return f"The best simple alternative, {best.name}, reaches {value} with {format_count(best.params)} parameters."
    if both := _replacements(result):
        best = _best(both, metric)
        sizes = f"{format_count(best.params)} parameters instead of {format_count(small.params)}"
        return f"{_good_enough(best, result)} with {sizes}: you may not need this model."
    enough = [other for other in result.alternatives if _as_good(other, small, metric)]
    if not enough:
        best = _best(result.alternatives, metric)
        return f"The best simple alternative, {best.name}, {_falls_short(best, result)}."
    best = _best(enough, metric)
    sentence = f"{_good_enough(best, result)}, but larger: {format_count(best.params)} parameters instead of "
    sentence += f"{format_count(small.params)}"
    if best.speedup > small.speedup:
        sentence += f"; it is faster, {describe_speed(best)} as the original"
    if smaller := [other for other in result.alternatives if other.params <= small.params]:
        best = _best(smaller, metric)
        sentence += f". The best smaller alternative, {best.name}, {_falls_short(best, result)}"
    return f"{sentence}."


def _replacements(result: RunResult) -> list[Alternative]:
    small, metric = result.subnetwork, METRICS[result.metric]
    return [other for other in result.alternatives if other.params <= small.params and _as_good(other, small, metric)]


def _best(alternatives: Iterable[Alternative], metric: Metric) -> Alternative:
    return min(alternatives, key=lambda other: metric.loss(0, other.value))


def _as_good(other: Alternative, small: EvaluatedModel, metric: Metric) -> bool:
    """Not worse than the worse end of the subnetwork's 95 % interval."""
    return metric.loss(small.interval[metric.lower_is_better], other.value) <= 0


def _good_enough(other: Alternative, result: RunResult) -> str:
    small = result.subnetwork
    within = small.interval[0] <= other.value <= small.interval[1]
    remarks = (
        f"{name_metric(result)} {show_value(result, other.value)} against {show_value(result, small.value)}",
        remark_lower(result),
        "within the 95 % interval" if within else ONE_TRAINING,
    )
    how = "is as good" if within else "did better"
    return f"A simple alternative, {other.name}, {how} here ({', '.join(filter(None, remarks))})"


def _falls_short(other: Alternative, result: RunResult) -> str:
    lost = 100 * METRICS[result.metric].loss(result.subnetwork.value, other.value)
    lower = remark_lower(result)
    how = f"more, and {lower}" if lower else "less"
    return f"reaches {name_metric(result)} {show_value(result, other.value)}: {lost:.1f} points {how}"
