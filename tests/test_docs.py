"""The documentation: everything named and every command has a page, code runs, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from test_readme import blocks

from docs import commands, links, notebook, things
from docs.gather import DOCUMENTS, ROOT, documents, guide, relinked
from docs.markdown import inline, prose
from docs.round import GROUPS, ROUND, Drawn
from fedcap import attacks
from fedcap.cli import app
from fedcap.cli.list import registries

PAGES = ROOT / "docs" / "pages"
WRITTEN = sorted(path for path in PAGES.rglob("*.md") if path.name != "SUMMARY.md")
EVERYTHING = [(room, name) for room, registry in registries().items() for name in registry.names()]
NEED_A_REFERENCE = ("methods", "attacks", "aggregators", "detectors", "data sets")
OURS = {"local", "malformed", "handwritten62", "arrays", "csv", "folder", "npz"} | {
    "frame",
    "noisy",
    "sleeper",
    "steady",
    "stealth",
    "worst-of",
}
"""What is from nobody's paper, and needs no formula; some of it is the user's own."""


def cites(text: str) -> bool:
    """Whether a text names somebody's work by its year, or has a formula that stands by itself."""
    return bool(re.search(r"\b(19|20)\d\d\b|^    .*[=≤≥>←‖]", text, re.MULTILINE))


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return things.pages()


@pytest.mark.parametrize(("room", "name"), EVERYTHING)
def test_everything_named_has_a_page_with_all_of_its_options(
    reference: dict[str, str], room: str, name: str
) -> None:
    registry, folder = registries()[room], room.replace(" ", "-")
    found = reference[f"{folder}/{name}.md"]
    assert found.startswith(f"# {name}\n")
    assert sorted(re.findall(r"^\| `(\w+)` \|", found, re.MULTILINE)) == sorted(registry.options(name))
    assert f"[{name}]({name}.md)" in reference[f"{folder}/index.md"]
    assert f"[{name}]({name}.md)" in reference[f"{folder}/SUMMARY.md"]
    assert "[" + room.capitalize() + "](" + folder + "/)" in reference["SUMMARY.md"]


@pytest.mark.parametrize(
    ("room", "name"), [pair for pair in EVERYTHING if pair[0] in NEED_A_REFERENCE and pair[1] not in OURS]
)
def test_what_is_from_a_paper_says_which_or_shows_its_formula(
    reference: dict[str, str], room: str, name: str
) -> None:
    assert cites(reference[f"{room.replace(' ', '-')}/{name}.md"].partition("## ")[0])


@pytest.mark.usefixtures("restored_registries")
def test_what_registers_itself_has_a_page_at_once() -> None:
    @attacks.registry.register("shouting")
    @dataclass(frozen=True)
    class Shouting(attacks.Attack):
        """Send the honest update, but louder than it was."""

        volume: float = 3.0
        """How much louder."""

        def craft(self, view: Any) -> Any:
            """Return louder rows."""
            return self.volume * view.updates[view.malicious]

    found = things.pages()
    assert "| `volume` | number | `3.0` | How much louder. |" in found["attacks/shouting.md"]
    assert "$ fedcap run --attack shouting --set attack.volume=3.0" in found["attacks/shouting.md"]
    assert "[shouting](shouting.md) | Send the honest update" in found["attacks/index.md"]


def test_every_command_has_a_page_with_all_of_its_options() -> None:
    found = commands.pages()
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    for name, command in root.commands.items():
        for way, inner in commands.walk(command, (name,)):
            heading = f"# fedcap {' '.join(way)}\n"
            assert heading in found[f"{name}.md"]
            part = found[f"{name}.md"].partition(heading)[2].partition("# fedcap ")[0]
            for param in inner.params:
                shown = (
                    max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
                )
                assert shown in part, (way, shown)


def test_words_that_look_like_markup_stay_words() -> None:
    assert inline("<script> a|b [c] `<d>`") == "&lt;script> a&#124;b &#91;c] `<d>`"
    assert prose("2M < N:\n\n    a < b") == "2M &lt; N:\n\n    a < b"


def test_every_page_that_is_written_is_in_the_list_of_pages() -> None:
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (PAGES / "SUMMARY.md").read_text()))
    there = {str(path.relative_to(PAGES)) for path in WRITTEN}
    generated = {f"own/{name}" for name in guide()} | {"start/notebook.md"}
    assert listed == there | generated
    assert not there & generated, "a page is written by hand and generated as well"


def test_documents_of_the_repository_are_pages_whose_links_hold() -> None:
    found = documents()
    assert {path.name.lower() for path in DOCUMENTS} == found.keys() - {"SUMMARY.md"}
    text = "[a](RESULTS.md#b) [c](../src/d.py) [e](https://f.org) ![g](figures/h.png)\n```\n[i](j)\n```\n"
    assert relinked(text) == (
        "[a](results.md#b) c [e](https://f.org) ![g](figures/h.png)\n```\n[i](j)\n```\n"
    )


@pytest.mark.parametrize("path", [path for path in WRITTEN if blocks(path.read_text(), "python")], ids=str)
def test_the_python_of_a_page_runs_in_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(), "python"):
        exec(compile(block, str(path), "exec", dont_inherit=True), names)


def test_broken_links_and_what_is_loaded_from_elsewhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://x.org"><script src="https://x.org/y.js"></script>'
        '<a href="b/c.html#here">1</a><a href="b/c.html#gone">2</a><a href="d.html">3</a>'
        '<a href="https://x.org">4</a><a href="#top">5</a><a href="../e.html">6</a><a href="/b/">7</a>'
        '<h1 id="top">8</h1><img src="data:image/png;base64,AA==">'
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.html").write_text('<p id="here">1</p>')
    (tmp_path / "b" / "index.html").write_text("<p>1</p>")
    assert links.troubles(tmp_path) == [
        "a.html leads to ../e.html, which is not there",
        "a.html leads to b/c.html#gone, and there is no such place",
        "a.html leads to d.html, which is not there",
        "a.html loads https://x.org/y.js",
    ]


def test_the_round_that_is_drawn_is_the_one_that_its_page_tells_of() -> None:
    drawn = Drawn()
    page = (PAGES / "concepts" / "round.md").read_text()
    assert set(re.findall(r'"drawings/([\w.]+)"', page)) == drawn.all().keys()
    assert "the sixth of" in page
    assert drawn.record.round == ROUND == 6
    assert sum(group is None for group in drawn.groups.values()) == 6
    assert len(drawn.record.removed) == 5
    assert "Five are over the limit" in page
    honest = drawn.seen.weights[[k for k, group in drawn.groups.items() if group is not None]]
    attackers = [k for k, group in drawn.groups.items() if group is None]
    assert float(honest[:, attackers].sum(dim=1).max()) < 0.2, "attackers have a small share"
    for k, group in drawn.groups.items():
        alike = [other for other in drawn.groups if drawn.groups[other] == group]
        if group is not None:
            assert float(drawn.seen.weights[k, alike].sum()) > GROUPS / 10, "groups draw together"
    for text in drawn.all().values():
        assert "\n\n" not in text.strip(), "an empty line would end the block"


def test_the_notebook_is_small_and_shows_what_it_says() -> None:
    assert notebook.NOTEBOOK.stat().st_size < 250_000
    code = [cell for cell in notebook.read()["cells"] if cell["cell_type"] == "code"]
    assert 8 <= len(code) <= 12
    assert all(cell["outputs"] for cell in code)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))


RUN = "import json; from docs import notebook; n = notebook.read(); notebook.run(n); print(json.dumps(n))"


@pytest.mark.slow
def test_the_notebook_runs_in_a_fresh_process_and_shows_what_is_kept(tmp_path: Path) -> None:
    path = f"{ROOT}:{Path(sys.modules['fedcap'].__file__ or '').parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    for ran, kept in zip(json.loads(done.stdout)["cells"], notebook.read()["cells"], strict=True):
        assert _kinds(ran) == _kinds(kept)


def _kinds(cell: dict[str, Any]) -> list[Any]:
    """Return what kinds of output a cell has; figures and figures' digits may differ by machine."""
    return [(shown["output_type"], sorted(shown.get("data", ()))) for shown in cell.get("outputs", ())]
