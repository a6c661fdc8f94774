"""From a packed story to one HTML file: style sheets, scripts and the story itself, and nothing fetched.

The scripts in `assets` are ES modules; here they become one, in the order in which they need each other. The
page may run that script and use those styles, and nothing else: its content security policy has their hashes.
With `live`, an address relative to the page's own, the page asks there for newer stories.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files

STYLES = ("page.css", "pictures.css", "print.css")
FIRST = "main.js"

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_COMMENT = re.compile(r"^[ ]*(//[^\n]*|/\*.*?\*/)\n", re.MULTILINE | re.DOTALL)
_INDENT = re.compile(r"^[ ]+", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body{live}>
<div class="top"></div>
<main><noscript>This page is drawn by a script of its own: allow scripts to read it.</noscript></main>
<script type="application/json" id="story">{story}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def page(packed: str, live: str | None = None) -> str:
    """Return the page that tells a packed story; with `live`, one that follows the story at that address."""
    style, script = _style(), _script()
    connect = "'none'" if live is None else "'self'"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=html.escape(policy),
        title=html.escape(str(json.loads(packed).get("title", "fedcap"))[:200]),
        style=style,
        live="" if live is None else f' data-live="{html.escape(live)}"',
        story=packed.replace("<", "\\u003c"),
        script=script,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    """Return a file of the page without comments and indentation: no string in it goes over a line's end."""
    text = (files(__package__) / "assets" / name).read_text(encoding="utf-8")
    return _INDENT.sub("", _COMMENT.sub("", text))


@cache
def _style() -> str:
    return "".join(map(_asset, STYLES))


@cache
def _script() -> str:
    """Return all modules as one, each after those that it imports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in done:
            text = _asset(name)
            done[name] = ""  # a circle ends here
            for other in _IMPORT.findall(text):
                add(other)
            done[name] = done.pop(name) + _EXPORT.sub("", _IMPORT.sub("", text))

    add(FIRST)
    return "\n".join(done.values())
