"""The documentation: each named thing and each command has a page, code runs, links are not broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from test_readme import blocks

from docs import commands, computed, links, notebook, reference
from docs.gather import DOCUMENTS, ROOT, adapt_links, documents, guide
from fedcap.cli import app
from fedcap.cli.list import registries
from fedcap.runs import Provenance, Result, RoundRecord

PAGES = ROOT / "docs" / "pages"
WRITTEN = sorted(path for path in PAGES.rglob("*.md") if path.name != "SUMMARY.md")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


@pytest.mark.parametrize("kind", registries())
def test_each_named_thing_has_a_page_with_all_of_its_options(pages: dict[str, str], kind: str) -> None:
    registry, folder = registries()[kind], kind.replace(" ", "-")
    assert f"[{kind.capitalize()}]({folder}/)" in pages["SUMMARY.md"]
    for name in registry.names():
        page = pages[f"{folder}/{name}.md"]
        assert page.startswith(f"# {name}\n")
        assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(registry.options(name))
        assert f"[{name}]({name}.md)" in pages[f"{folder}/index.md"]
        assert f"[{name}]({name}.md)" in pages[f"{folder}/SUMMARY.md"]


def test_every_command_has_a_page_with_all_of_its_options() -> None:
    found = commands.pages()
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    for name, command in root.commands.items():
        for words, inner in commands.walk(command, (name,)):
            heading = f"# fedcap {' '.join(words)}\n"
            assert heading in found[f"{name}.md"]
            part = found[f"{name}.md"].partition(heading)[2].partition("# fedcap ")[0]
            for param in inner.params:
                shown = (
                    max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
                )
                assert shown in part, (words, shown)


def test_each_written_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (PAGES / "SUMMARY.md").read_text()))
    there = {str(path.relative_to(PAGES)) for path in WRITTEN}
    generated = {f"own/{name}" for name in guide()}
    assert listed == there | generated
    assert not there & generated, "a page is written by hand and generated as well"


def test_links_of_the_repositorys_documents_are_adapted_to_the_site() -> None:
    found = documents()
    assert {path.name.lower() for path in DOCUMENTS} == found.keys() - {"SUMMARY.md"}
    text = "[a](RESULTS.md#b) [c](../src/d.py) [e](https://f.org) ![g](figures/h.png)\n```\n[i](j)\n```\n"
    assert adapt_links(text) == (
        "[a](results.md#b) c [e](https://f.org) ![g](figures/h.png)\n```\n[i](j)\n```\n"
    )


def test_the_tables_of_pages_are_computed() -> None:
    included = {name for path in WRITTEN for name in re.findall(r'"computed/([\w.]+)"', path.read_text())}
    assert included == computed.pages().keys()


@pytest.mark.parametrize(
    ("section", "cls", "not_in_file"),
    [
        ("rounds.jsonl", RoundRecord, ()),
        ("result.json", Result, ("history", "models")),
        ("provenance.json", Provenance, ()),
    ],
)
def test_the_page_of_the_run_directory_has_every_field(
    section: str, cls: type, not_in_file: tuple[str, ...]
) -> None:
    text = (PAGES / "details" / "run-directory.md").read_text()
    part = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {field.name for field in fields(cls)} - set(not_in_file)


@pytest.mark.parametrize("path", [path for path in WRITTEN if blocks(path.read_text(), "python")], ids=str)
def test_the_python_of_a_page_runs_in_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(), "python"):
        exec(compile(block, str(path), "exec", dont_inherit=True), names)


def test_broken_links_and_files_from_other_hosts_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://x.org"><script src="https://x.org/y.js"></script>'
        '<a href="b/c.html#here">1</a><a href="b/c.html#gone">2</a><a href="d.html">3</a>'
        '<a href="https://x.org">4</a><a href="#top">5</a><a href="../e.html">6</a><a href="/b/">7</a>'
        '<h1 id="top">8</h1><img src="data:image/png;base64,AA==">'
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.html").write_text('<p id="here">1</p>')
    (tmp_path / "b" / "index.html").write_text("<p>1</p>")
    assert links.find_problems(tmp_path) == [
        "a.html links to ../e.html, which does not exist",
        "a.html links to b/c.html#gone, which has no such anchor",
        "a.html links to d.html, which does not exist",
        "a.html loads https://x.org/y.js",
    ]


@pytest.mark.parametrize("path", notebook.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_is_small_and_was_run_in_order(path: Path) -> None:
    assert path.stat().st_size < 250_000
    code = [cell for cell in notebook.read(path)["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))


RUN = """
import json, pathlib, sys
from docs import notebook
content = notebook.read(pathlib.Path(sys.argv[1]))
notebook.run(content)
print(json.dumps(content))
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", notebook.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_the_stored_kinds_of_outputs(path: Path, tmp_path: Path) -> None:
    python_path = f"{ROOT}:{Path(sys.modules['fedcap'].__file__ or '').parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": python_path},
    )
    assert done.returncode == 0, done.stderr
    for new, stored in zip(json.loads(done.stdout)["cells"], notebook.read(path)["cells"], strict=True):
        assert _kinds(new) == _kinds(stored)


def _kinds(cell: dict[str, Any]) -> list[Any]:
    """Return the kinds of outputs of a cell; the digits may differ by machine."""
    return [(shown["output_type"], sorted(shown.get("data", ()))) for shown in cell.get("outputs", ())]
