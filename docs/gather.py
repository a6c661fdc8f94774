"""Gather the pages of the site in one folder: written by hand, taken from the repository, or generated."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from docs import api, commands, computed, notebook, reference, sample
from docs.markdown import page
from docs.round import DrawnRound

HERE = Path(__file__).parent
ROOT = HERE.parent
DOCUMENTS = sorted(HERE.glob("*.md"))
"""Documents of the repository that are also pages of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def gather(folder: Path) -> None:
    """Write all pages to a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "pages", folder)
    shutil.copytree(HERE / "figures", folder / "in-depth" / "figures")
    shutil.copy(HERE / "demo.png", folder / "assets")
    parts: dict[str, Mapping[str, str | bytes]] = {
        "start": sample.pages(),
        "notebooks": notebook.pages(),
        "in-depth": documents(),
        "own": guide(),
        "reference": reference.pages(),
        "commands": commands.pages(),
        "api": api.pages(),
        "drawings": DrawnRound().drawings(),
        "computed": computed.pages(),
    }
    for name, pages in parts.items():
        for path, content in pages.items():
            target = folder / name / path
            if target.exists():
                raise FileExistsError(f"two pages are called {name}/{path}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)


def documents() -> dict[str, str]:
    """Return the repository's documents as pages, and the list of them."""
    found = {path.name.lower(): adapt_links(path.read_text(encoding="utf-8")) for path in DOCUMENTS}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in found.items()}
    return found | {"SUMMARY.md": "".join(f"- [{title}]({name})\n" for name, title in titles.items())}


def adapt_links(text: str) -> str:
    """Return a document with links to other documents as on the site, and without links to other files."""
    names = {path.name for path in DOCUMENTS}

    def link(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups(default="")
        if target in names:
            return f"{mark}[{words}]({target.lower()}{anchor})"
        outside = not mark and "://" not in target
        return words if outside else found[0]

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def guide() -> dict[str, str]:
    """Return a page for each section of CONTRIBUTING.md about one kind of thing."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"^## (?:An?) (.*)$", text, flags=re.MULTILINE)
    found = {}
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        body = re.sub(r"^#(#+ )", r"\1", body, flags=re.MULTILINE)
        found[f"{name.split()[-1]}.md"] = page(f"# Your own {name}", body)
    return found
