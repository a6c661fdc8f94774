"""The built documentation in a headless browser, opened from the disk: drawings, search, no other hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import MISSING, Browser, browser, is_there

from docs.gather import ROOT

SITE = ROOT / "site"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not is_there(), reason=MISSING),
    pytest.mark.skipif(not SITE.is_dir(), reason="the documentation is not built: make docs"),
]
LOADED = "document.readyState === 'complete'"
SEARCHED = """
const inside = (it) => (it.shadowRoot ? all(it.shadowRoot) : []);
const all = (root) => [...root.querySelectorAll('*')].flatMap((it) => [it, ...inside(it)]);
const field = all(document).find((it) => it.getAttribute('role') === 'combobox');
if (!field) return '';
if (field.value !== 'krum') {
  field.value = 'krum';
  field.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
}
return all(document).map((it) => (it.tagName === 'A' ? it.href : '')).join(' ');
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize(
    "page",
    [
        "index",
        "concepts/round",
        "reference/attacks/min-max",
        "commands/run",
        "api/fedcap",
        "notebooks/fedcap-on-digits",
    ],
)
def test_a_page_loads_nothing_else_has_no_errors_and_fits_a_phone(window: Browser, page: str) -> None:
    window.size(390, 800)
    window.open(SITE / f"{page}.html", ready=LOADED)
    assert window.complaints() == []
    assert [it for it in window.requests() if not it.startswith(("file:", "about:", "data:"))] == []
    assert window.value("document.documentElement.scrollWidth <= innerWidth")


def test_drawings_have_the_colours_of_the_page(window: Browser) -> None:
    window.open(SITE / "concepts" / "round.html", ready=LOADED)
    assert window.value("document.querySelectorAll('.drawing svg').length") == 5
    assert window.value("document.querySelectorAll('.drawing rect.above, .drawing rect.below').length") >= 800
    assert window.value("document.querySelectorAll('math[display=block]').length") == 6, (
        "equations 3 to 7, and the one of step 5"
    )
    fill = "getComputedStyle(document.querySelector('.drawing text')).fill"
    light = window.value(fill)
    window.run("document.body.dataset.mdColorScheme = 'slate'")
    assert window.value(fill) != light


def test_the_search_works_without_a_server(window: Browser) -> None:
    window.size(1280, 900)
    window.open(SITE / "index.html", ready=LOADED)
    assert "aggregators/krum.html" not in window.value(f"(() => {{{SEARCHED}}})()")
    window.click(".md-search__button")
    window.wait(f"(() => {{{SEARCHED}}})().includes('aggregators/krum.html')")
