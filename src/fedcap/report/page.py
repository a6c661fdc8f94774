"""From a directory to one self-contained HTML page: `build_report` reads the directory, `page` writes HTML.

The page holds its styles, its scripts and the report as JSON, and loads nothing. The scripts in `assets` are
ES modules; they are joined into one script in the order of their imports. The page's content security policy
allows this script and these styles by their hashes, and nothing else. With `live`, an address relative to
that of the page, the page asks there for newer reports.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from fedcap.errors import InputError
from fedcap.report.grid import Memo, grid_report, is_grid
from fedcap.report.model import Report
from fedcap.report.pack import SizeLimit
from fedcap.report.run import RunFiles, Standings, read_local, run_report
from fedcap.runs import CONFIG, ROUNDS

FEDERATION = "federation.toml"
ASSETS = files("fedcap.report") / "assets"
STYLE, FIRST_SCRIPT = "page.css", "main.js"

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
<main><noscript>This page needs JavaScript: a script inside the page draws it.</noscript></main>
<script type="application/json" id="report">{report}</script>
<script type="module">{script}</script>
</body>
</html>
"""


class NothingThere(InputError):
    """A directory holds no run, grid or federation, or not yet."""


def build_report(
    path: Path | str,
    local: Path | str | None = None,
    standings: Standings | None = None,
    memo: Memo | None = None,
) -> Report:
    """Return the report on a directory, finished or not; what cannot be read is listed in `problems`.

    `local` is a run of the method `local` on the same data, to compare clients with. `standings` is what the
    ledger of a federation says about its clients. With the same `memo` in repeated calls, only those runs of
    a grid are read again that have changed.
    """
    path = Path(path)
    in_federation = (path / FEDERATION).exists()
    where = path / "run" if in_federation else path
    if in_federation or (where / CONFIG).exists() or (where / ROUNDS).exists():
        run = RunFiles.read(where, in_federation)
        alone = None if local is None else read_local(Path(local), run)
        return run_report(run, SizeLimit(), alone, standings)
    if is_grid(path):
        if local is not None:
            raise InputError(
                "a grid takes no run of Local: it uses its own runs of the method local, if it has any",
                code="bad-option",
            )
        return grid_report(path, {} if memo is None else memo)
    raise NothingThere(f"{path} holds no run, grid or federation", code="no-run")


def page(packed: str, live: str | None = None) -> str:
    """Return the page of a packed report; with `live`, one that follows the report at that address."""
    style, script = _asset(STYLE), _script()
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
        report=packed.replace("<", "\\u003c"),
        script=script,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    """Return a file of the page without comments and indentation; no string in it spans several lines."""
    return _INDENT.sub("", _COMMENT.sub("", (ASSETS / name).read_text(encoding="utf-8")))


@cache
def _script() -> str:
    """Return all modules as one script, each module after those that it imports."""
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in modules:
            text = _asset(name)
            modules[name] = ""  # ends a cycle of imports
            for other in _IMPORT.findall(text):
                add(other)
            modules[name] = modules.pop(name) + _EXPORT.sub("", _IMPORT.sub("", text))

    add(FIRST_SCRIPT)
    return "\n".join(modules.values())
