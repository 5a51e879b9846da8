"""Untrusted text in Markdown: shown literally, never interpreted as markup."""

from __future__ import annotations

import re

from probescale.utils.sanitize import escape_controls

_MARKUP = re.compile(r"([\\`*\[\]<>|&~])")


def escape_markdown(text: str) -> str:
    r"""The text on one line, without effect as markup.

    >>> print(escape_markdown("a|b <img src=x>\n[c](d) top_k"))
    a\|b \<img src=x\> \[c\](d) top_k
    """
    return _MARKUP.sub(r"\\\1", escape_controls(" ".join(text.split())))


def inline_code(text: str) -> str:
    """The text as inline code, whatever backticks it contains.

    >>> inline_code("a"), inline_code("`<b>`")
    ('`a`', '`` `<b>` ``')
    """
    line = escape_controls(" ".join(text.split()))
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence}{line}{fence}" if len(fence) == 1 else f"{fence} {line} {fence}"
