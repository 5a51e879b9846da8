"""What a study found: for every model and task, the smallest trained model that keeps enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from probescale.recovery.result import ORIGINAL
from probescale.report.page import Card
from probescale.report.phrases import format_megabytes, format_percent
from probescale.report.table import format_speed
from probescale.report.verdict import ENOUGH, Decision, too_few
from probescale.study.results import ResultRow
from probescale.study.tables import group_seeds, is_best
from probescale.tasks.metrics import METRICS

Group = Sequence[ResultRow]  # of one strategy and budget, which differ in the seed


@dataclass(frozen=True)
class Answer:
    """The smallest model that keeps enough for one model and task; the one that keeps most where none does."""

    model: str
    task: str
    original: Group
    best: Group
    enough: bool  # on the mean of its seeds
    sure: bool  # with every seed: its whole 95 % interval, on enough dev examples

    @property
    def name(self) -> str:
        return f"{self.best[0].strategy} with {self.best[0].budget}"

    @property
    def kept(self) -> float | None:
        return _retention(self.best)

    @property
    def metric(self) -> str:
        return self.best[0].metric.replace("_", " ")

    @property
    def times_smaller(self) -> float:
        return _mean(self.original, "params") / _mean(self.best, "params")

    def sentence(self) -> str:
        """The answer in one sentence."""
        show = METRICS[self.best[0].metric].show
        value, reached = (show(_mean(group, "value")) for group in (self.original, self.best))
        share = "" if self.kept is None else f", {100 * self.kept:.1f} %"
        size = f"{100 * self.best[0].ratio_total:.1f} % of the parameters, {self.metric} {reached}{share}"
        start = f"{self.task} with {self.model}: the original reaches {self.metric} {value}. "
        if self.enough:
            return f"{start}The smallest that keeps {format_percent(ENOUGH)} of it is {self.name}: {size}."
        return f"{start}No trained model keeps {format_percent(ENOUGH)} of it; {self.name} keeps most: {size}."

    def line(self) -> tuple[float, str] | None:
        """The metric that is enough."""
        value = _mean(self.original, "value")
        enough = METRICS[self.best[0].metric].keeping(ENOUGH, value)
        return (enough, f"{format_percent(ENOUGH)} of the original") if value > 0 else None


def find_answers(rows: Sequence[ResultRow]) -> list[Answer]:
    """One answer for every model and task of which a small model was trained."""
    answers = []
    for model, task in dict.fromkeys((row.model, row.task) for row in rows):
        groups = group_seeds([row for row in rows if (row.model, row.task) == (model, task)])
        original = next(group for group in groups if group[0].strategy == ORIGINAL)
        smaller = [group for group in groups if group[0].is_subnetwork]
        if not smaller:
            continue
        enough = [group for group in smaller if (_retention(group) or 0) >= ENOUGH]
        if enough:
            best = min(enough, key=lambda group: (_mean(group, "params"), -(_retention(group) or 0)))
        else:
            best = max(smaller, key=lambda group: _retention(group) or 0)
        sure = all((row.retention_low or 0) >= ENOUGH and not too_few(row.examples, ENOUGH) for row in best)
        answers.append(Answer(model, task, original, best, enough=bool(enough), sure=sure))
    return answers


def study_verdict(answers: Sequence[Answer]) -> tuple[Decision, str, str]:
    """Whether the study found a small model that is good enough, in one sentence."""
    limit = format_percent(ENOUGH)
    if not answers:
        return "unsure", "Nothing is known yet", "No small model has been trained."
    enough = [answer for answer in answers if answer.enough]
    if len(answers) > 1:
        decision: Decision = "ship" if all(one.enough and one.sure for one in answers) else "unsure" if enough else "no"
        heading = f"{len(enough)} of {len(answers)} can be made smaller"
        return decision, heading, f"For them a trained model keeps {limit} of what the original reaches."
    (answer,) = answers
    seeds = len(answer.best)
    several = f", mean of {seeds} seeds" if seeds > 1 else ""
    kept = "" if answer.kept is None else f"{100 * answer.kept:.1f} % of the {answer.metric}"
    size = f"{answer.times_smaller:.1f} times smaller and {_describe_speed(answer.best)}{several}"
    if not answer.enough:
        return "no", f"No model keeps {limit}", f"{answer.name} keeps most: {kept or 'no share to name'}, {size}."
    reasons = f"It keeps {kept}, is {size}, and is the smallest trained model that keeps {limit}"
    if answer.sure:
        return "ship", f"Ship {answer.name}", f"{reasons}."
    examples = answer.best[0].examples
    return "unsure", f"Perhaps {answer.name}", f"{reasons}, but {examples:,} examples cannot tell for every seed."


def study_cards(answers: Sequence[Answer], rows: Sequence[ResultRow]) -> list[Card]:
    """What was found: of the one answer its figures, of several one card each."""
    if len(answers) != 1:
        return [_place_card(answer) for answer in answers]
    (answer,) = answers
    best, original = answer.best, answer.original
    values = f"{100 * _mean(best, 'value'):.1f} instead of {100 * _mean(original, 'value'):.1f}, {answer.name}"
    speed, busy = _mean(best, "speedup"), any(row.busy for row in best)
    kept = f"{100 * _mean(best, 'value'):.1f}" if answer.kept is None else f"{100 * answer.kept:.1f} %"
    caption = answer.metric if answer.kept is None else f"of the {answer.metric} kept"
    cards = [
        Card(kept, caption, values, answer.kept),
        Card(
            f"{format_speed(speed).removesuffix('x')} times",
            "as fast as the original",
            "the machine was busy" if busy else _seed_range(best),
            1 / speed if speed > 0 else None,
            busy,
        ),
        _size_card(answer),
    ]
    return [*cards, *_method_card(rows)]


def _size_card(answer: Answer) -> Card:
    megabytes, whole = (_megabytes(group) for group in (answer.best, answer.original))
    remark = f"{answer.times_smaller:.1f} times smaller"
    if megabytes is None or whole is None:
        share = _mean(answer.best, "params") / _mean(answer.original, "params")
        return Card(f"{100 * share:.1f} %", "of the parameters", remark, share)
    remark = f"instead of {format_megabytes(whole)}; {remark}"
    return Card(format_megabytes(megabytes), "on disk", remark, megabytes / whole)


def _method_card(rows: Sequence[ResultRow]) -> list[Card]:
    """The strategy that is ahead under most budgets; none where only one was tried."""
    groups = [group for group in group_seeds(rows) if group[0].is_subnetwork]
    budgets = {group[0].budget for group in groups}
    if len({group[0].strategy for group in groups}) < 2:
        return []
    best = [group[0] for group in groups if is_best(group, rows)]
    ahead = [row.strategy for row in best if [other.budget for other in best].count(row.budget) == 1]  # no tie
    if not ahead:
        return [Card("a tie", "no method is ahead of the others")]
    name = max(dict.fromkeys(ahead), key=ahead.count)
    caption = f"ahead for {ahead.count(name)} of {len(budgets)} budget{'s' * (len(budgets) > 1)}"
    return [Card(name, caption, "which differences are significant stands below")]


def _place_card(answer: Answer) -> Card:
    where = f"{answer.task}, {answer.model}"
    if not answer.enough:
        return Card("none", where, f"{answer.name} keeps most", None, doubtful=True)
    return Card(f"{answer.times_smaller:.1f} times", f"smaller: {where}", answer.name, 1 / answer.times_smaller)


def _describe_speed(group: Group) -> str:
    return f"{'about ' * any(row.busy for row in group)}{_mean(group, 'speedup'):.1f} times as fast"


def _seed_range(group: Group) -> str:
    speeds = [row.speedup for row in group]
    return f"{min(speeds):.1f} to {max(speeds):.1f} over {len(speeds)} seeds" if len(speeds) > 1 else ""


def _mean(group: Group, name: str) -> float:
    return mean(getattr(row, name) for row in group)


def _retention(group: Group) -> float | None:
    known = [row.retention for row in group if row.retention is not None]
    return mean(known) if known else None


def _megabytes(group: Group) -> float | None:
    known = [row.megabytes for row in group if row.megabytes is not None]
    return mean(known) if known else None
