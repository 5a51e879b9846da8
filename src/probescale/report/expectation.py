"""Expected and measured values that lie far apart: a sign of too little training, or of a bad guess."""

from __future__ import annotations

from probescale.recovery.smallest import SearchStep
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_percent
from probescale.tasks.metrics import METRICS

FAR = 0.03  # points of a share, or this share of a value
ACCURACIES = ("accuracy", "tag_accuracy")  # the metrics that a probe's accuracy can be compared with


def is_far(expected: float | None, measured: float | None) -> bool:
    """Whether an expected and a measured value do not go together."""
    return expected is not None and measured is not None and abs(expected - measured) > FAR


def is_far_step(step: SearchStep) -> bool:
    """Whether a step of a search did not reach, or surpassed, what was expected of it."""
    return step.expected is not None and abs(step.expected - step.value) > FAR * abs(step.expected)


def falls_behind_probe(probed: float | None, measured: float | None, metric: str) -> bool:
    """Whether a trained model is clearly worse than a probe on the same layers before training."""
    return is_far(probed, measured) and metric in ACCURACIES and (probed or 0) > (measured or 0)


def probe_sentence(findings: RunFindings) -> str:
    """That the trained model knows less than a probe found in its layers; empty where that is not so."""
    probed, result = findings.scores.subnetworks, findings.result
    accuracy = dict(zip(probed.subsets, probed.accuracy, strict=True)) if probed else {}
    expected, value = accuracy.get(result.subnetwork.kept), result.subnetwork.value
    if expected is None or result.failure or not falls_behind_probe(expected, value, result.metric):
        return ""
    return (
        f"Expected and measured are far apart: a probe on these layers reached {100 * expected:.1f} before any "
        f"training, the trained model {100 * value:.1f}. It may need more training, or other settings."
    )


def search_sentences(findings: RunFindings) -> list[str]:
    """What a search for the smallest model was asked and what it trained; empty for other runs."""
    search = findings.search
    if search is None:
        return []
    sizes = ", ".join(f"{step.budget} ({'enough' if step.enough else 'too little'})" for step in search.trials[1:])
    asked = (
        f"Asked: the smallest model that keeps {format_percent(search.keep)}. Trained: {sizes or 'nothing smaller'}, "
        f"decided on {search.examples:,} examples of train that nothing learned from."
    )
    return [asked, *(_far_sentence(step, search.metric) for step in search.trials if is_far_step(step))]


def _far_sentence(step: SearchStep, metric: str) -> str:
    assert step.expected is not None
    expected, value = (METRICS[metric].show(each, 1) for each in (step.expected, step.value))
    return f"Expected and measured are far apart at {step.budget}: {expected} against {value}."
