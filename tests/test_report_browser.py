"""The pages of a run, a grid and a federation, and the live page, in a headless browser."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import DOWN, ENTER, LEFT, MISSING, RIGHT, Browser, browser, is_there
from federation_tools import federation
from report_tools import HOSTILE, a_grid, a_run
from run_tools import SMALL

import fedcap
from fedcap.cli.report import report_on
from fedcap.report.live import LivePage
from fedcap.report.model import Report, RunData
from fedcap.report.pack import pack
from fedcap.report.page import build_report, page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not is_there(), reason=MISSING)]

PIXELS = "document.querySelector('canvas').toDataURL()"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
HASH = "decodeURIComponent(location.hash)"
SECTIONS = "[...document.querySelectorAll('section')].map((it) => it.id)"
DRAWN = "[...document.querySelectorAll('.chart')].every((it) => it.querySelector('path, rect'))"
HURRY = """
window.delays = [];
const real = setTimeout;
window.setTimeout = (act, wait) => real(act, wait >= 1500 ? (delays.push(wait), 50) : wait);
"""
"""Record how long the page waits before it asks again, and shorten that."""


@pytest.fixture(scope="module")
def browsers() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def window(browsers: Browser) -> Iterator[Browser]:
    """Return a window of the usual size; check at the end that nothing was loaded from a host or logged."""
    browsers.size(1280, 900)
    browsers.prefers(color_scheme="light")
    browsers.requests()
    yield browsers
    assert browsers.complaints() == []
    asked = [
        address for address in browsers.requests() if not address.startswith(("blob:", "data:", "about:"))
    ]
    assert all(address.startswith(("file://", "http://127.0.0.1:")) for address in asked)


def saved(report: Report, folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text(page(pack(report)), encoding="utf-8")
    return path


def run_of(report: Report) -> RunData:
    assert report.run is not None
    return report.run


def column(window: Browser, table: str, place: int) -> list[str]:
    return window.texts(f"{table} tbody tr > :nth-child({place})")


# --- A run


def test_the_page_of_a_run_draws_every_section_with_the_numbers_of_the_records(
    window: Browser, tmp_path: Path
) -> None:
    result = fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    window.open(saved(build_report(tmp_path / "run"), tmp_path))
    sections = ["accuracy", "detection", "mixing", "attack", "clients", "classes", "cost", "about"]
    assert window.value(SECTIONS) == sections
    assert [link.lower() for link in window.texts("nav a")] == sections
    assert window.value(DRAWN)
    assert window.value(f"{PIXELS}.length > 200")
    assert f"{result.tacc:.1f} %" in window.texts(".figures .value")
    accuracy = result.history[-1].accuracy
    assert accuracy is not None
    assert f"Round 3: mean {accuracy.personal:.1f}" in window.texts("#accuracy .readout")[0]


def test_the_slider_moves_the_map_the_charts_and_the_address(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    last = window.value(PIXELS)
    window.type("#mixing input", LEFT + LEFT)
    assert window.value(PIXELS) != last
    assert window.texts("#mixing output") == ["round 3 of 5"]
    assert window.texts("#accuracy .readout")[0].startswith("Round 3:")
    window.wait(f"{HASH} === '#round=3'")
    window.type("#mixing input", RIGHT + RIGHT)
    assert window.value(PIXELS) == last
    window.wait(f"{HASH} === ''")


def test_the_map_shows_each_weight_under_the_cursor(window: Browser, tmp_path: Path) -> None:
    mixing = run_of(report := a_run()).mixing
    assert mixing is not None
    window.open(saved(report, tmp_path), "#round=2")
    window.type(".map svg", DOWN + DOWN + RIGHT + RIGHT)
    text = window.texts("#mixing .readout")[0]
    share = float(text.split(": ")[1].split(" %")[0])
    assert text.endswith("% of the model of c1 comes from c2.")
    assert share == pytest.approx(100 * np.asarray(mixing.weights)[1, 1, 2], abs=0.5)


def test_tables_sort_filter_and_save(window: Browser, tmp_path: Path) -> None:
    report = a_run(names=HOSTILE)
    window.open(saved(report, tmp_path))
    heads = window.texts("#clients thead button")
    assert heads[:7] == ["client", "role", "state", "samples", "shared", "personal", "Local"]
    known = [client for client in run_of(report).clients if client.personal is not None]
    down = [client.name for client in sorted(known, key=lambda client: -float(client.personal or 0))]
    window.click("#clients [data-key='clients sort 5']")
    assert column(window, "#clients", 1) == [*down, "c6", "c7"]
    window.click("#clients [data-key='clients sort 5']")
    assert column(window, "#clients", 1) == [*reversed(down), "c6", "c7"]
    rows = list(csv.reader(io.StringIO(window.download("#clients .save"))))
    assert {row[0] for row in rows[1:]} >= {HOSTILE[0], HOSTILE[1], "'=1+1", HOSTILE[3]}
    window.type("#clients input", "Malicious")
    assert column(window, "#clients", 1) == ["c6", "c7"]
    assert window.texts("#clients .note") == ["2 of 8 clients"]
    assert window.download("#about .command .save") == 'name = "fedcap"\n'


def test_a_chosen_client_is_shown_everywhere_and_by_its_address(window: Browser, tmp_path: Path) -> None:
    path = saved(a_run(), tmp_path)

    def shown() -> list[list[str]]:
        places = ("button.chosen", "#accuracy .label.own", "tr.chosen th", ".side h3")
        return [window.texts(place) for place in places]

    window.open(path)
    window.click("#clients tbody tr:nth-child(3) td")
    window.wait(f"{HASH} === '#client=c2'")
    everywhere = [["c2 ✕"], ["c2", "c2"], ["c2"], ["The model of c2"]]
    assert shown() == everywhere
    window.open(path, "#client=c2&round=1&at=clients")
    assert shown() == everywhere
    assert window.texts("#mixing output") == ["round 1 of 5"]
    window.wait("Math.abs(document.querySelector('#clients').getBoundingClientRect().top) < 200")
    window.click("button.chosen")
    assert shown()[:3] == [[], [], []]


def test_hostile_names_and_reasons_remain_text(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(names=HOSTILE, reason=HOSTILE[1] * 50_000), tmp_path))
    window.click("#clients tbody tr:nth-child(1) td")
    assert window.texts("#clients tbody th")[:4] == list(HOSTILE)
    assert window.value("document.querySelectorAll('img, main script').length") == 0
    assert window.value("document.documentElement.scrollHeight") < 9000


@pytest.mark.parametrize("width", [360, 500])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_shows_all_of_the_navigation_and_scrolls_only_down(
    window: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    window.size(width, 740)
    window.prefers(color_scheme=scheme)
    for report in (a_run(names=HOSTILE), a_grid()):
        window.open(saved(report, tmp_path))
        assert window.value(WIDTHS) == [width, width]
        boxes = "[...document.querySelectorAll('nav a')].map((it) => it.getBoundingClientRect())"
        assert window.value(f"{boxes}.every((it) => it.left >= 0 && it.right <= innerWidth)")
        nav = "document.querySelector('nav')"
        assert window.value(f"{nav}.scrollWidth <= {nav}.clientWidth")
        ground = "getComputedStyle(document.body).backgroundColor"
        first = window.value(ground)
        assert first == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")
        window.click("[data-key=theme]")
        assert window.value(ground) != first


def test_every_control_is_reached_by_keyboard_and_has_a_name(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    controls = "[...document.querySelectorAll('button, input, a, [tabindex]')]"
    nameless = "!(it.ariaLabel ?? it.textContent).trim() || it.tabIndex < 0"
    assert window.value(f"{controls}.filter((it) => {nameless}).length") == 0


def test_on_paper_everything_is_light_and_open_and_nothing_is_a_control(
    window: Browser, tmp_path: Path
) -> None:
    window.open(saved(a_run(), tmp_path))
    light = window.value(PIXELS)
    window.click("[data-key=theme]")
    dark = window.value(PIXELS)
    is_open = "[...document.querySelectorAll('details')].every((it) => it.open)"
    window.run(f"addEventListener('beforeprint', () => (window.printed = [{PIXELS}, {is_open}]))")
    window.print(tmp_path / "page.pdf")
    assert window.value("window.printed") == [light, True]
    assert light != dark == window.value(PIXELS)
    window.command("Emulation.setEmulatedMedia", media="print")
    controls = "[...document.querySelectorAll('button:not(th button), nav, input')]"
    assert not window.value(f"{controls}.some((it) => it.checkVisibility())")
    window.size(718, 1000)  # A4 without its margins
    assert window.value(WIDTHS) == [718, 718]
    window.command("Emulation.setEmulatedMedia", media="")


# --- A grid and a federation


def test_a_cell_of_a_grid_opens_its_runs_and_leads_back(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_grid(), tmp_path))
    assert window.texts(".cells td")[:3] == ["50.0± 1.5", "60.0± 1.5", "60.0ipm"]
    assert window.texts(".cells .empty") == ["not yet"]
    assert "fedavg,ipm,60,1.5" in window.download("#table .save")
    window.type("[data-key='cell digits/fedcap/no attack']", ENTER)
    window.wait("document.querySelector('h1').textContent === 'fedcap · no attack · seed 0'")
    window.wait("document.querySelectorAll('.line.personal').length > 0")
    window.click(".run-bar .choices a:nth-of-type(2)")
    window.wait("document.querySelector('h1').textContent === 'fedcap · no attack · seed 1'")
    window.wait("document.activeElement.className === 'back'")
    window.press(ENTER)
    window.wait("document.querySelector('h1').textContent === 'a grid'")
    assert window.value("document.activeElement.dataset.key") == "cell digits/fedcap/no attack"
    window.open(saved(a_grid(), tmp_path), "#cell=digits/fedavg/ipm/1&client=c3&round=2")
    assert window.texts("h1") == ["fedavg · ipm · seed 1"]
    assert window.texts("button.chosen") == ["c3 ✕"]
    assert window.texts("#mixing output") == ["round 2 of 5"]


def test_the_page_of_a_federation_shows_its_sites_and_removals_by_the_operator(
    window: Browser, tmp_path: Path
) -> None:
    made = federation(tmp_path)
    (tmp_path / "federation.toml").write_text('host = "here"\n')
    with made.conductor() as conductor:
        conductor.run()
    made.ledger.remove("2", "it moved away", 3, by="operator")
    window.open(saved(report_on(tmp_path), tmp_path))
    assert window.texts(".kind") == ["Federation"]
    assert column(window, "#clients", 1) == [f"site-{number}" for number in range(5)]
    assert "✕ removed, round 3" in column(window, "#clients", 2)
    assert column(window, "#detection", 4) == ["by the operator: it moved away"]
    assert window.value(DRAWN)


# --- The live page


@contextmanager
def opened(window: Browser, folder: Path, build: Callable[[Path], Report] = build_report) -> Iterator[None]:
    """Serve a live page and open it; the window leaves the page before the server ends."""
    with LivePage(folder, build=build) as live:
        window.open(live.address)
        try:
            yield
        finally:
            window.leave()


@contextmanager
def showing(window: Browser, folder: Path, first: Report) -> Iterator[Callable[[Report], None]]:
    """Open the live page of a report, and yield a function that replaces the report."""
    current = [first]

    def show(report: Report) -> None:
        current.append(report)
        (folder / "config.toml").write_text("#" * len(current))

    with opened(window, folder, lambda _: current[-1]):
        window.run(HURRY)
        yield show


def state_is(state: str) -> str:
    return f"document.querySelector('.live').textContent === '{state}'"


def test_the_live_page_follows_a_run_from_before_its_start_without_a_reload(
    window: Browser, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ["--attack", "ipm", "--rounds", "80", "--set", "dataset.samples=30", "--workers", "1", "-q"]
    with LivePage(out) as live:
        window.open(live.address)
        assert "does not exist yet" in window.texts(".lead")[0]
        window.run("window.untouched = true")
        command = [sys.executable, "-m", "fedcap", "run", "--dataset", "digits", *options, "--out", str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            window.wait("document.querySelector('.lead').textContent.includes('so far')", 120)
            window.wait(state_is("■ finished"), 240)
            assert process.wait(60) == 0
        assert window.value("window.untouched") is True
        result = fedcap.read(out).result
        assert result is not None
        assert f"{result.tacc:.1f} %" in window.texts(".figures .value")
        assert "mixing" in window.value(SECTIONS)
    window.wait(state_is("○ no connection"), 40)
    window.leave()
    window.complaints()  # the browser logs the refused connection


def test_the_live_page_keeps_the_choices_of_its_reader(window: Browser, tmp_path: Path) -> None:
    with showing(window, tmp_path, replace(a_run(rounds=2), state="unfinished", planned=9)) as show:
        window.type("#clients input", "c1")
        window.run("scrollTo({top: 900, behavior: 'instant'})")
        show(replace(a_run(rounds=4), state="unfinished", planned=9))
        window.wait("document.querySelector('#mixing output').textContent === 'round 4 of 4'")
        assert window.texts(".state") == ["4 of 9 rounds so far"]
        assert column(window, "#clients", 1) == ["c1"]
        assert window.value("[document.activeElement.value, scrollY]") == ["c1", 900]
        window.type("#mixing input", LEFT)
        show(replace(a_run(rounds=6), state="unfinished", planned=9))
        window.wait("document.querySelector('#mixing output').textContent === 'round 3 of 6'")
