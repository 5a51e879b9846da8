"""Hostile strings, and functions that show whether they had an effect on a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt

SCRIPT = "</script><script>window.evil=1</script><!-- <img src=x onerror='window.evil=1'>"
MARKUP = "=cmd()|`code` **b** [bold]red[/bold] [x](http://evil) ![x](http://evil) &lt;b&gt; $x_$"
ESCAPES = "\x1b[31mred\x1b]0;title\x07 \x9b31m \r\u202ebackwards"
TOKEN = "hf_" + "CanaryCanaryCanaryCanary0123456789"


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


def elements(page: str) -> list[tuple[str, Any]]:
    """Every element of an HTML page with its attributes, and every comment."""
    parser = _Elements()
    parser.feed(page)
    return parser.found


def markup(page: str) -> set[str]:
    """The HTML and the targets of links and images in a Markdown page."""
    tokens = [inner for token in MarkdownIt().enable("table").parse(page) for inner in (token, *(token.children or ()))]
    html = {"html" for token in tokens if token.type.startswith("html")}
    return html | {str(token.attrs.get("href") or token.attrs.get("src")) for token in tokens if token.attrs} - {"None"}
