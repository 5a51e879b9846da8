"""A table for the terminal (rich), Markdown, JSON and LaTeX."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable

from probescale.report.escaping import escape_markdown

LEVELS = "▁▂▃▄▅▆▇█"
GAP = 2  # characters between columns
NOT_SHOWN = "not shown for lack of width: "


def format_interval(low: str, high: str) -> str:
    """An interval from one number to another.

    >>> format_interval("80.1", "82.3"), format_interval("-3.1", "4.2")
    ('80.1-82.3', '-3.1 to 4.2')
    """
    return f"{low} to {high}" if low.startswith("-") else f"{low}-{high}"


def format_speed(speedup: float) -> str:
    """How many times as fast as the original.

    >>> format_speed(4.81), format_speed(1234.5)
    ('4.8x', '1,234x')
    """
    return f"{speedup:.1f}x" if speedup < 100 else f"{speedup:,.0f}x"


def format_share(share: float) -> str:
    """A share in percent, in five characters; a very small one is not shown as none.

    >>> format_share(0.766), format_share(0.0001), format_share(1.0)
    ('76.6%', '<0.1%', '100%')
    """
    return "100%" if share == 1 else "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def draw_levels(values: Sequence[float], low: float, high: float) -> str:
    """One small bar per value, as high as the value between `low` and `high`.

    >>> draw_levels([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▅█'
    """
    return "".join(LEVELS[round((value - low) / (high - low) * 7) if high > low else 0] for value in values)


def _escape_latex(text: str) -> str:
    """Text without effect as LaTeX markup.

    >>> print(_escape_latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    special = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}"}
    return "".join(special.get(character, character) for character in text)


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


@dataclass(frozen=True)
class FittedTable:
    """A table that rich draws as wide as the console allows."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.table.fit(options.max_width)


@dataclass(frozen=True)
class Table:
    """Rows of text under a header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[int] = frozenset()  # numbers of highlighted rows
    words: int = 1  # number of leading columns with words; the others hold numbers
    optional: tuple[str, ...] = ()  # headings of columns that a narrow terminal does without, the first one first

    def without(self, heading: str) -> Table:
        """The same table without this column."""
        left_out = self._one_line_header().index(heading)
        header, *rows = ((*row[:left_out], *row[left_out + 1 :]) for row in (self.header, *self.rows))
        return replace(self, header=header, rows=tuple(rows), words=self.words - (left_out < self.words))

    def rich(self) -> FittedTable:
        """For the terminal, whatever its width."""
        return FittedTable(self)

    def fit(self, width: int) -> RichTable:
        """For a terminal of this width: optional columns are left out before a word is cut, and named below."""
        if self.optional and sum(self._widths(_longest_word)) + GAP * (len(self.header) - 1) > width:
            narrow = replace(self.without(self.optional[0]), optional=self.optional[1:])
            table = narrow.fit(width)
            table.caption = f"{NOT_SHOWN}{self.optional[0]}{str(table.caption or '').replace(NOT_SHOWN, ', ')}"
            return table
        return self._draw(self._word_widths(width))

    def _word_widths(self, width: int) -> list[int]:
        """Widths of the columns with words: they give way from the last to the first, down to their longest word."""
        natural, least = self._widths(_longest_line), self._widths(_longest_word)
        excess = sum(natural) + GAP * (len(natural) - 1) - width
        for column in reversed(range(self.words)):
            given = min(max(excess, 0), natural[column] - least[column])
            natural[column] -= given
            excess -= given
        return natural[: self.words] if excess <= 0 else []

    def _widths(self, measure: Callable[[str], int]) -> list[int]:
        columns = list(zip(self.header, *self.rows, strict=True))
        return [
            max(measure(cell) if number < self.words else _longest_line(cell) for cell in column)
            for number, column in enumerate(columns)
        ]

    def _draw(self, word_widths: Sequence[int]) -> RichTable:
        table = RichTable(
            title=self.title,
            caption_justify="left",
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 1, 0, 0),  # narrow gaps: the widest table fits 80 columns
            pad_edge=False,
        )
        for i, name in enumerate(self.header):
            justify = "left" if i < self.words or not name else "right"
            width = word_widths[i] if i < len(word_widths) else None
            table.add_column(name, justify=justify, no_wrap=i >= self.words, overflow="fold", width=width)
        for i, row in enumerate(self.rows):
            table.add_row(*row, style="bold green" if i in self.strong else None)
        return table

    def json(self) -> str:
        """A list with one object per row."""
        return json.dumps([dict(zip(self._one_line_header(), row, strict=True)) for row in self.rows], indent=2)

    def markdown(self) -> str:
        """Highlighted rows are bold."""
        align = [":--" if i < self.words else "--:" for i in range(len(self.header))]
        head, *cells = ([escape_markdown(cell) for cell in row] for row in (self._one_line_header(), *self.rows))
        rows = [[f"**{cell}**" if i in self.strong and cell else cell for cell in row] for i, row in enumerate(cells)]
        return "\n".join("| " + " | ".join(row) + " |" for row in [head, align, *rows])

    def latex(self) -> str:
        """With booktabs; highlighted rows are bold."""
        align = "".join("l" if i < self.words else "r" for i in range(len(self.header)))
        lines = [" & ".join(map(_escape_latex, self._one_line_header())) + r" \\", r"\midrule"]
        for i, row in enumerate(self.rows):
            cells = [
                rf"\textbf{{{_escape_latex(cell)}}}" if i in self.strong and cell else _escape_latex(cell)
                for cell in row
            ]
            lines.append(" & ".join(cells) + r" \\")
        body = "\n".join([r"\toprule", *lines, r"\bottomrule"])
        caption = rf"\caption{{{_escape_latex(self.title)}}}"
        table = f"\\begin{{tabular}}{{{align}}}\n{body}\n\\end{{tabular}}"
        return f"\\begin{{table}}\n\\centering\n{caption}\n{table}\n\\end{{table}}"

    def _one_line_header(self) -> list[str]:
        return [name.replace("-\n", "").replace("\n", " ") for name in self.header]


def format_duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> format_duration(42.3), format_duration(600), format_duration(36_000)
    ('42 s', '10 min', '10.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
