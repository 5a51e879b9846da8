"""Figures of a run as phrases: what is kept, how fast, how large."""

from __future__ import annotations

from probescale.models.speed import SpeedSpread
from probescale.recovery.recipe import ORIGINAL_AS_IT_IS
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.tasks.metrics import METRICS
from probescale.utils.files import format_size


def name_metric(result: RunResult) -> str:
    """The metric's name in words."""
    return result.metric.replace("_", " ")


def show_value(result: RunResult, value: float, digits: int = 1) -> str:
    """A value of the run's metric as people read it."""
    return METRICS[result.metric].show(value, digits)


def describe_training(result: RunResult) -> str:
    """How the models of a run were trained."""
    original = "" if ORIGINAL_AS_IT_IS in result.recipe else "; the original learns from labels only"
    return f"Recipe: {result.recipe}. All subnetworks were trained with it{original}."


def remark_lower(result: RunResult) -> str:
    """A remark for metrics of which less is better; empty for the others."""
    return "lower is better" if METRICS[result.metric].lower_is_better else ""


def has_retention(result: RunResult) -> bool:
    """Whether there are shares of the original's metric to show; there are none after a failure."""
    models = (
        result.original,
        result.subnetwork,
        *result.compared.values(),
        *result.other_models.values(),
        *result.alternatives,
    )
    return result.failure is None and any(model.retention is not None for model in models)


def format_count(number: int) -> str:
    """A number of parameters, short.

    >>> format_count(33_360_000), format_count(1_540_000_000), format_count(12_345)
    ('33.4M', '1.5B', '12,345')
    """
    if number >= 1e9:
        return f"{number / 1e9:.1f}B"
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number:,}"


def format_percent(share: float) -> str:
    """A share as people write it, without needless digits.

    >>> format_percent(0.95), format_percent(0.975)
    ('95 %', '97.5 %')
    """
    return f"{100 * share:.4g} %"


def describe_kept(result: RunResult, *remarks: str) -> str:
    """How much of the metric is kept, with these remarks; both values alone where no share is to be named."""
    name, small, original = name_metric(result), result.subnetwork.value, result.original.value
    values = f"{show_value(result, small)} instead of {show_value(result, original)}"
    lower = remark_lower(result)
    # "90 % of the distance" would sound like less distance, and a negative share like nothing at all.
    if result.failure or lower or result.retention is None or result.retention < 0:
        inside = "; ".join(filter(None, (lower, *remarks)))
        return f"{name} is {values}" + (f" ({inside})" if inside else "")
    inside = "; ".join(filter(None, (*remarks, values)))
    return f"{100 * result.retention:.1f} % of the {name} is kept ({inside})"


def describe_interval(result: RunResult) -> str:
    """The 95 % interval of what is kept; empty where it is not known, and after a failure."""
    if result.failure or result.retention_interval is None:
        return ""
    low, high = result.retention_interval
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def describe_speed(model: EvaluatedModel | Alternative) -> str:
    """How fast beside the original, with the spread of single measurements."""
    busy = model.spread is not None and model.spread.busy
    spread = format_spread(model.spread) if model.spread else ""
    if busy:
        return f"about {_times(model.speedup)} ({spread}: the machine was busy)"
    return _times(model.speedup) + (f" ({spread})" if spread else "")


def format_spread(spread: SpeedSpread) -> str:
    """From how much to how much.

    >>> format_spread(SpeedSpread(low=1.84, high=2.16, waited=0))
    '1.8 to 2.2'
    """
    ends = (f"{end:.1f}" if end < 100 else f"{end:,.0f}" for end in (spread.low, spread.high))
    return " to ".join(ends)


def _times(speedup: float) -> str:
    """How fast, beside the original.

    >>> _times(4.81), _times(1.02), _times(812.4)
    ('4.8 times as fast', 'just as fast', '812 times as fast')
    """
    if 0.95 <= speedup < 1.05:
        return "just as fast"
    return f"{speedup:.1f} times as fast" if speedup < 100 else f"{speedup:,.0f} times as fast"


def describe_size(small: EvaluatedModel, original: EvaluatedModel) -> str:
    """Megabytes and parameters beside the original's."""
    params = f"{format_count(small.params)} parameters"
    if small.params == original.params:
        size = f"{params}, as many as the original"
    else:
        size = f"{params} instead of {format_count(original.params)} ({describe_ratio(small, original)})"
    if small.megabytes is None or original.megabytes is None:
        return f"has {size}"
    megabytes = format_megabytes(small.megabytes)
    if small.params != original.params:
        megabytes += f" instead of {format_megabytes(original.megabytes)}"
    return f"takes {megabytes}, with {size}"


def describe_ratio(small: EvaluatedModel, original: EvaluatedModel) -> str:
    """How many times smaller, or how many percent where it is hardly smaller."""
    if small.params == original.params:
        return "not smaller"
    times = original.params / small.params
    return f"{times:.1f} times smaller" if times >= 1.05 else f"{1 - 1 / times:.1%} less".replace("%", " %")


def format_megabytes(megabytes: float) -> str:
    """A size on disk.

    >>> format_megabytes(26.48), format_megabytes(1540)
    ('26.5 MB', '1.5 GB')
    """
    return format_size(megabytes * 1e6)
