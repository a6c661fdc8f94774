"""Find the problems of a built site: broken links, and files that a page would load from another host."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""The tags whose address a browser loads, and the attribute with the address."""
NOT_LOADED = {"canonical", "next", "prev"}
"""Kinds of <link> that browsers do not load."""


class Page(HTMLParser):
    """The links of a page, the addresses that it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store a tag's address and anchor."""
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        address = found.get(LOADS.get(tag, "href"))
        if address is not None and found.get("rel") not in NOT_LOADED:
            (self.loaded if tag in LOADS else self.links).add(address)


def find_problems(site: Path) -> list[str]:
    """Return a line for each broken link, and for each file that a page would load from another host."""
    read = cache(lambda path: Page(path.read_text(encoding="utf-8")))
    found = []
    for path in sorted(site.rglob("*.html")):
        page, name = read(path), path.relative_to(site)
        for address in sorted(page.loaded | page.links):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loaded and parts.scheme != "data":
                    found.append(f"{name} loads {address}")
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site.resolve()) or not target.is_file():
                found.append(f"{name} links to {address}, which does not exist")
            elif parts.fragment and unquote(parts.fragment) not in read(target).anchors:
                found.append(f"{name} links to {address}, which has no such anchor")
    return found
