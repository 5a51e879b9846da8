"""The verdict on a run: ship it or not, in one sentence with the reasons, for page, terminal, report and card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probescale.recovery.ladder import ENOUGH
from probescale.recovery.result import RunResult
from probescale.report.escaping import escape_markdown
from probescale.report.expectation import probe_sentence, search_sentences
from probescale.report.findings import RunFindings
from probescale.report.ladder import ladder_sentences
from probescale.report.phrases import describe_interval, describe_kept, describe_size, describe_speed, format_percent
from probescale.report.rivals import (
    alternatives_sentence,
    better_than_the_original,
    comparison_sentence,
    simpler_is_enough,
)

Decision = Literal["ship", "unsure", "no"]
HERE, ELSEWHERE = "this machine", "the machine that trained it"  # the second for files, which are read anywhere
UNSEEN = 3  # errors that n examples can all miss, 19 times of 20, where none of them shows one


@dataclass(frozen=True)
class Verdict:
    """Whether to ship a model, and why."""

    decision: Decision
    heading: str
    reasons: str
    details: tuple[str, ...]  # further sentences: doubts, other layers, simpler models

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return f"{self.heading}: {self.reasons}"


def decide(findings: RunFindings, *, machine: str = HERE) -> Verdict:
    """Ship it, do not, or find out more. `machine`: where it was timed, as the reader should call it."""
    result, regressions = findings.result, findings.regressions
    decision, heading, doubt = _judge(result)
    reasons = (
        f"{describe_kept(result, describe_interval(result), doubt)}, it is {describe_speed(result.subnetwork)} on "
        f"{machine} and {describe_size(result.subnetwork, result.original)}"
    )
    if result.failure:
        reasons = f"{result.failure} {reasons[0].upper()}{reasons[1:]}"
    elif regressions:
        reasons += (
            f"; of {regressions.slices[0].rows:,} examples, {regressions.newly_wrong:,} that were right are now wrong "
            f"and {regressions.newly_right:,} that were wrong are now right"
        )
    details = (
        *ladder_sentences(findings),
        _busy_sentence(result),
        *search_sentences(findings),
        probe_sentence(findings),
        comparison_sentence(result),
        _choice_sentence(findings),
        alternatives_sentence(result),
    )
    return Verdict(decision, heading, f"{reasons}.", tuple(filter(None, details)))


def run_summary(findings: RunFindings) -> list[str]:
    """The closing lines of a run in a terminal: the verdict, then doubts, other layers and simpler models."""
    verdict = decide(findings)
    return [verdict.sentence, *verdict.details]


def verdict_markdown(findings: RunFindings) -> list[str]:
    """The first paragraphs of a Markdown page: the verdict, then what else there is to know."""
    verdict = decide(findings, machine=ELSEWHERE)
    first = f"**{escape_markdown(verdict.heading)}:** {escape_markdown(verdict.reasons)}"
    return [f"> {first}" if verdict.decision == "no" else first, *map(escape_markdown, verdict.details)]


def wanted_share(result: RunResult) -> float:
    """The share of the original's metric that is enough."""
    return ENOUGH if result.wanted is None else result.wanted


def _judge(result: RunResult) -> tuple[Decision, str, str]:
    """The decision, its heading, and what speaks against shipping."""
    wanted, interval = wanted_share(result), result.retention_interval
    limit = f"{format_percent(wanted)} {'is the usual limit' if result.wanted is None else 'was asked for'}"
    if result.failure:
        return "no", "Do not ship it", ""
    if result.subnetwork.params >= result.original.params:
        return "no", "Keep the original", limit
    if result.retention is None or interval is None:
        return "unsure", "Not sure yet", "how much is kept cannot be said"
    if interval[1] < wanted:
        return "no", "Do not ship it", limit
    if better := better_than_the_original(result):
        return "unsure", "Not sure yet", f"the original itself has learned too little: {better}"
    if simpler_is_enough(result):
        return "unsure", "You may not need it", ""
    if interval[0] < wanted:
        return "unsure", "Not sure yet", f"{limit}, and {result.examples:,} examples cannot tell"
    if too_few(result.examples, wanted):
        return "unsure", "Not sure yet", f"{limit}, and {result.examples:,} examples are too few to tell"
    return "ship", "Ship it, but time it again" if timed_while_busy(result) else "Ship it", ""


def too_few(examples: int, wanted: float) -> bool:
    """Whether this many examples could miss every error of a model that keeps less than the wanted share."""
    return examples * max(1 - wanted, 0.01) < UNSEEN


def timed_while_busy(result: RunResult) -> bool:
    """Whether other work disturbed the timing of the subnetwork."""
    return result.subnetwork.spread is not None and result.subnetwork.spread.busy


def _busy_sentence(result: RunResult) -> str:
    spread = result.subnetwork.spread
    if spread is None or not spread.busy:
        return ""
    return (
        f"The machine was busy while speed was measured (the model waited for a processor {spread.waited:.0%} of the "
        f"time, and single passes were {spread.low:.1f} to {spread.high:.1f} times as fast as the original's): "
        'time it again with "probescale bench" when the machine is free.'
    )


def _choice_sentence(findings: RunFindings) -> str:
    """That other layers could have been chosen as well; empty where the choice is certain or nothing was learned."""
    certainty = findings.selection.certainty
    if findings.result.failure or certainty is None or not certainty.close:
        return ""
    return f"The choice of layers is uncertain. {certainty.sentence()}"


def verdict_rule(result: RunResult) -> str:
    """What the verdict follows from."""
    asked = "as was asked" if result.wanted is not None else "the usual limit; --keep asks for another"
    return (
        f"The verdict is “ship it” where the 95 % interval of the share that is kept lies above "
        f"{format_percent(wanted_share(result))} ({asked}), the dev set is large enough to see that, the original is "
        "not clearly worse than a simpler model, and no simple alternative is as good. It does not know what an error "
        "costs you: read what became worse."
    )
