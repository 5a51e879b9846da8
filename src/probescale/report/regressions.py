"""What a smaller model newly gets wrong, in words and as a table."""

from __future__ import annotations

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
