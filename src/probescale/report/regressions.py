"""Regressions of the smaller model, and what should not matter to it but does, as sentences and tables."""

from __future__ import annotations

from probescale.recovery.bias import Bias, SwapEffect
from probescale.recovery.regressions import Regressions
from probescale.report.table import Table


def regression_sentence(regressions: Regressions) -> str:
    """How often both models agree, and how many rows became wrong or right."""
    rows = regressions.slices[0].rows
    return (
        f"The smaller model and the original agree on {regressions.agreement:.1%} of the {rows:,} dev rows. "
        f"{regressions.newly_wrong:,} rows are newly wrong and {regressions.newly_right:,} newly right "
        "(regressions.json)."
    )


def regression_table(regressions: Regressions) -> Table:
    """Both models on parts of the dev set."""
    rows = tuple(
        (
            part.name,
            f"{part.rows:,}",
            f"{part.original:.1%}",
            f"{part.small:.1%}",
            f"{part.newly_wrong:,}",
            f"{part.newly_right:,}",
        )
        for part in regressions.slices
    )
    header = ("dev rows", "count", "original right", "smaller right", "newly wrong", "newly right")
    return Table("What became worse", header, rows)


def bias_sentence(bias: Bias) -> str:
    """How often what should not matter changes the prediction of each model, and where both differ."""
    total = bias.total
    subject = f"pairs of {bias.source}" if bias.source else "pairs of sentences that differ only in a name or pronoun"
    found = (
        f"Of {total.pairs:,} {subject}, the smaller model predicts different labels for {total.small_changed:.1%}, the "
        f"original for {total.original_changed:.1%}: {_difference(total)}."
    )
    apart = [effect for effect in bias.groups if len(bias.groups) > 1 and _is_apart(effect)]
    groups = "; ".join(f"{effect.group}, {_difference(effect)}" for effect in apart)
    where = f" By group: {groups}." if apart else ""
    limit = "" if bias.source else " This is a hint, not a proof: the sentences are few, and not from your domain."
    return found + where + limit


def _is_apart(effect: SwapEffect) -> bool:
    low, high = effect.more_changed
    return low > 0 or high < 0


def _difference(effect: SwapEffect) -> str:
    """The difference between both models in points, and what its interval allows to say."""
    low, high = (100 * end for end in effect.more_changed)
    verdict = "the smaller model depends on it more" if low > 0 else "the smaller model depends on it less"
    verdict = verdict if _is_apart(effect) else "no clear difference between the two"
    points = 100 * (effect.small_changed - effect.original_changed)
    return f"{points:+.1f} points (95 %: {low:+.1f} to {high:+.1f}), {verdict}"


def bias_table(bias: Bias) -> Table:
    """Changed labels and shifted probabilities, by what differs in a pair."""
    effects = (*bias.groups, *([bias.total] if len(bias.groups) > 1 else []))
    rows = tuple(
        (
            effect.group,
            f"{effect.pairs:,}",
            *(f"{share:.1%}" for share in (effect.original_changed, effect.small_changed)),
            _points(effect.more_changed),
            *(f"{share:.1%}" for share in (effect.original_shift, effect.small_shift)),
            _points(effect.more_shift),
        )
        for effect in effects
    )
    header = ("pairs that differ in", "count", "original: label changes", "smaller: label changes", "difference, 95 %",
              "original: mean shift", "smaller: mean shift", "difference, 95 %")  # fmt: skip
    return Table("Texts that should be answered alike", header, rows)


def _points(ends: tuple[float, float]) -> str:
    return f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}"
