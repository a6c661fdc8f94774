"""The page as text: its security policy, escaping, and its scripts joined into one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from report_tools import HOSTILE, a_run

from fedcap.report.pack import pack
from fedcap.report.page import page

ASSETS = Path(str(files("fedcap.report"))) / "assets"


class Parts(HTMLParser):
    """The elements of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._inside, []).append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def policy(self) -> dict[str, str]:
        content = next(
            a["content"] for t, a in self.elements if a.get("http-equiv") == "Content-Security-Policy"
        )
        return dict(rule.strip().split(" ", 1) for rule in str(content).split(";"))


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_only_the_script_and_the_styles_of_the_page() -> None:
    parts = Parts(page(pack(a_run())))
    scripts = parts.texts["script"]
    assert parts.policy() == {
        "default-src": "'none'",
        "script-src": hash_of(scripts[-1]),
        "style-src": hash_of("".join(parts.texts["style"])),
        "img-src": "data:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_live_page_may_ask_only_its_own_server() -> None:
    parts = Parts(page(pack(a_run()), live='report.json?"'))
    assert parts.policy()["connect-src"] == "'self'"
    assert dict(parts.elements)["body"] == {"data-live": 'report.json?"'}


def test_nothing_is_loaded_from_elsewhere() -> None:
    parts = Parts(page(pack(a_run())))
    sources = [a.get("src") or a.get("href") for _, a in parts.elements if "src" in a or "href" in a]
    assert sources == ["data:,"]
    text = "".join(path.read_text() for path in ASSETS.iterdir())
    assert not re.search(r"https?:(?!//www\.w3\.org/(2000/svg|1999/xhtml)\")|@import|url\((?!#)", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_not_end_an_element_and_is_read_back_whole(name: str) -> None:
    report = replace(a_run(names=[name], reason=name), title=name)
    parts = Parts(page(pack(report)))
    assert [tag for tag, _ in parts.elements].count("script") == 2
    assert not {"img", "b"} & {tag for tag, _ in parts.elements}
    read_back = json.loads(parts.texts["script"][0])
    assert read_back["run"]["clients"][0]["name"] == name
    assert parts.texts["title"] == [name]


def test_a_report_that_was_not_escaped_does_not_end_the_script_either() -> None:
    parts = Parts(page(json.dumps({"title": "x", "summary": "</script><!--<script>"})))
    assert json.loads(parts.texts["script"][0])["summary"] == "</script><!--<script>"
