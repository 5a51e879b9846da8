"""Check the documentation: every page is in the navigation, no link is dead, and the built site loads nothing remote.

`zensical build --strict` checks links between pages. This checks the rest: pages missing from the navigation, links to
other files, links of the Markdown files in the root, and resources that a browser would fetch from the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
REMOTE = re.compile(r"(https?:)?//")
LOADING = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "prefetch", "dns-prefetch", "manifest"}


def main() -> None:
    problems = [*find_orphans(ROOT), *find_dead_links(ROOT), *find_remote_resources(ROOT / "site")]
    if problems:
        sys.exit("\n".join(problems))


def find_orphans(root: Path) -> Iterator[str]:
    """Pages outside the navigation of mkdocs.yml, and entries of it that are not pages."""
    listed = set(_list_pages(YAML(typ="safe").load((root / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    pages = {path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")}
    yield from (f"docs/{page}: not in the navigation of mkdocs.yml" for page in sorted(pages - listed))
    yield from (f"mkdocs.yml: docs/{page} does not exist" for page in sorted(listed - pages))


def _list_pages(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _list_pages(part)


def find_dead_links(root: Path) -> Iterator[str]:
    """Relative links of all Markdown files whose file or heading does not exist."""
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = link.partition("#")
            target = page.parent / place if place else page
            if not target.exists():
                yield f"{page.relative_to(root)}: {link} does not exist"
            elif anchor and anchor not in _find_anchors(target):
                yield f"{page.relative_to(root)}: {link}: no such heading"


def _find_anchors(page: Path) -> set[str]:
    """Names of a page's headings, as the site and code forges form them."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def find_remote_resources(site: Path) -> Iterator[str]:
    """Scripts, styles, fonts and pictures of the built pages that come from the network."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site.name}/ has no pages: run `make site`"
    for page in pages:
        finder = _ResourceFinder()
        finder.feed(page.read_text(encoding="utf-8"))
        yield from (f"{page.relative_to(site.parent)}: loads {address}" for address in finder.addresses)
    for style in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import\s)\s*[\"']?((?:https?:)?//[^\"')]+)", style.read_text("utf-8")):
            yield f"{style.relative_to(site.parent)}: loads {address}"


class _ResourceFinder(HTMLParser):
    """Collects the remote addresses that a browser requests while it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        address = values.get("src") or values.get("poster") or values.get("srcset") or values.get("data") or ""
        if tag == "link" and LOADING & set(values.get("rel", "").split()):
            address = values.get("href", "")
        if REMOTE.match(address):
            self.addresses.append(address)
        if "mermaid" in values.get("class", "").split():  # the theme fetches its script for such a block
            self.addresses.append("mermaid, for a diagram")


if __name__ == "__main__":
    main()
