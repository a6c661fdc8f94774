"""What is wrong with a built site: links that lead nowhere, and what a page would load from elsewhere."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a page loads by itself, and where it says so; other addresses are for its reader to follow."""
NOT_LOADED = {"canonical", "next", "prev"}
"""Kinds of <link> that are for search engines."""


class Page(HTMLParser):
    """The addresses that a page leads to, those that it loads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag's addresses and its name."""
        found = {name: value for name, value in attrs if value is not None}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        address = found.get(LOADS.get(tag, "href"))
        if address is not None and found.get("rel") not in NOT_LOADED:
            (self.loads if tag in LOADS else self.leads).add(address)


def troubles(site: Path) -> list[str]:
    """Return a line for each address that leads nowhere, or that a page would load from elsewhere."""
    read = cache(lambda path: Page(path.read_text(encoding="utf-8")))
    found = []
    for path in sorted(site.rglob("*.html")):
        page, name = read(path), path.relative_to(site)
        for address in sorted(page.loads | page.leads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    found.append(f"{name} loads {address}")
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site.resolve()) or not target.is_file():
                found.append(f"{name} leads to {address}, which is not there")
            elif parts.fragment and unquote(parts.fragment) not in read(target).places:
                found.append(f"{name} leads to {address}, and there is no such place")
    return found
