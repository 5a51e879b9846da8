"""Regressions of the smaller model, and its sensitivity to names and pronouns, as sentences and tables."""

from __future__ import annotations

from probescale.recovery.bias import Bias
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
    """How often a name or pronoun alone changes the prediction of each model."""
    pairs = sum(effect.pairs for effect in bias.small)
    original, small = (sum(e.changed * e.pairs for e in effects) / pairs for effects in (bias.original, bias.small))
    return (
        f"Of {pairs} pairs of sentences that differ only in a name or pronoun, the smaller model predicts different "
        f"labels for {small:.1%}, the original for {original:.1%}. This is a hint, not a proof: the sentences are "
        "few, and not from your domain."
    )


def bias_table(bias: Bias) -> Table:
    """Changed labels and shifted probabilities, by what differs in a pair."""
    rows = tuple(
        (small.kind, str(small.pairs), *(f"{v:.1%}" for v in (whole.changed, small.changed, whole.shift, small.shift)))
        for whole, small in zip(bias.original, bias.small, strict=True)
    )
    header = ("pairs that differ in", "count", "original: label changes", "smaller: label changes",
              "original: mean shift", "smaller: mean shift")  # fmt: skip
    return Table("Names and pronouns", header, rows)
