"""What a smaller model newly gets wrong, and what names and pronouns do to it: in words and as tables."""

from __future__ import annotations

from probescale.recovery.bias import Bias
from probescale.recovery.regressions import Regressions
from probescale.report.table import Table


def regression_sentence(changed: Regressions) -> str:
    rows = changed.slices[0].rows
    return (
        f"The smaller model says what the original says on {changed.agreement:.1%} of the {rows:,} dev rows. "
        f"{changed.newly_wrong:,} rows are newly wrong and {changed.newly_right:,} newly right (regressions.json)."
    )


def regression_table(changed: Regressions) -> Table:
    rows = tuple(
        (
            one.name,
            f"{one.rows:,}",
            f"{one.original:.1%}",
            f"{one.small:.1%}",
            f"{one.newly_wrong:,}",
            f"{one.newly_right:,}",
        )
        for one in changed.slices
    )
    header = ("rows of dev", "count", "original right", "smaller right", "newly wrong", "newly right")
    return Table("What became worse", header, rows)


def bias_sentence(bias: Bias) -> str:
    pairs = sum(one.pairs for one in bias.small)
    was, now = (sum(one.changed * one.pairs for one in part) / pairs for part in (bias.original, bias.small))
    return (
        f"Of {pairs} pairs of sentences that differ only in a name or pronoun, the smaller model answers {now:.1%} "
        f"differently, the original {was:.1%}. A sign, not a proof: the sentences are few, and not of your domain."
    )


def bias_table(bias: Bias) -> Table:
    rows = tuple(
        (one.kind, str(one.pairs), *(f"{value:.1%}" for value in (was.changed, one.changed, was.shift, one.shift)))
        for was, one in zip(bias.original, bias.small, strict=True)
    )
    header = ("pairs that differ in", "count", "original: answer changes", "smaller: answer changes",
              "original: mean shift", "smaller: mean shift")  # fmt: skip
    return Table("Names and pronouns", header, rows)
