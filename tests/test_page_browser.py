"""The page in a headless browser: pictures, all that can be pressed, and nothing asked of any host."""

from __future__ import annotations

import csv
import io
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from browser import DOWN, ENTER, LEFT, MISSING, RIGHT, Browser, browser, is_there
from page_tools import HOSTILE, a_grid, a_run
from run_tools import SMALL

import fedcap
from fedcap.report.page import page
from fedcap.report.story import Story, packed, story_of

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not is_there(), reason=MISSING)]

PIXELS = "document.querySelector('canvas').toDataURL()"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
HASH = "decodeURIComponent(location.hash)"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_else_happens(window: Browser) -> Iterator[None]:
    window.size(1280, 900)
    window.prefers(color_scheme="light")
    window.requests()
    yield
    assert window.complaints() == []
    asked = {address for address in window.requests() if not address.startswith(("blob:", "data:", "about:"))}
    assert all(address.startswith(("file://", "http://127.0.0.1:")) for address in asked)


def saved(story: Story, folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text(page(packed(story)), encoding="utf-8")
    return path


def column(window: Browser, table: str, place: int) -> list[str]:
    return window.texts(f"{table} tbody tr > :nth-child({place})")


def test_the_page_of_a_real_run_draws_every_picture(window: Browser, tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    window.open(saved(story_of(tmp_path / "run"), tmp_path))
    assert window.value("[...document.querySelectorAll('section:not([hidden])')].map((it) => it.id)") == [
        "accuracy",
        "detection",
        "mixing",
        "attack",
        "clients",
        "classes",
        "cost",
        "about",
    ]
    assert window.value(
        "[...document.querySelectorAll('.chart')].every((it) => it.querySelector('path, rect'))"
    )
    assert window.value(
        "[...document.querySelectorAll('.line.personal, .line.honest')].every((it) => it.getAttribute('d'))"
    )
    assert window.value(f"{PIXELS}.length > 200")
    record = fedcap.read(tmp_path / "run").rounds[-1]
    assert record.accuracy is not None
    assert f"Round 3: mean {record.accuracy.personal:.1f}" in window.texts("#accuracy .readout")[0]


def test_the_slider_moves_the_map_and_the_address_follows(window: Browser, tmp_path: Path) -> None:
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


def test_playing_goes_through_the_rounds_and_stops_at_the_last(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(rounds=3), tmp_path))
    window.click(".play")
    window.wait("document.querySelector('#mixing output').textContent === 'round 1 of 3'")
    assert window.texts(".play") == ["❚❚ pause"]
    window.wait("document.querySelector('.play').textContent === '▶ play'")
    assert window.texts("#mixing output") == ["round 3 of 3"]


def test_a_run_that_plays_rests_when_another_view_is_opened(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_grid(), tmp_path), "#cell=fedavg/ipm/0")
    window.click(".play")
    window.click(".back")
    window.wait("document.querySelector('h1').textContent === 'a grid'")
    window.run("setTimeout(() => (document.body.dataset.later = 'true'), 700)")
    window.wait("document.body.dataset.later === 'true'")
    assert window.value(HASH) == ""


def test_the_map_tells_each_weight_as_it_was(window: Browser, tmp_path: Path) -> None:
    story = a_run()
    assert story.course is not None
    assert story.course.mixing is not None
    weights = np.asarray(story.course.mixing.weights)
    window.open(saved(story, tmp_path), "#round=2")
    window.type(".map svg", DOWN + DOWN + RIGHT + RIGHT)
    told = window.texts("#mixing .readout")[0]
    share = float(told.split(": ")[1].split(" %")[0])
    assert told.endswith("% of c1’s model comes from c2.")
    assert share == pytest.approx(100 * weights[1, 1, 2], abs=0.5)


def test_arrow_keys_read_a_chart_out(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    window.type("#detection svg[role=slider]", LEFT + DOWN)
    told = window.texts("#detection .readout")[0]
    assert told.startswith("Round 4, limit 6: c")
    assert (
        window.value("document.querySelector('#detection svg[role=slider]').getAttribute('aria-valuetext')")
        == told
    )


def test_attackers_and_removals_are_marked_by_shape_and_say_why(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    assert window.texts("#detection .mark.removed title") == [
        "c6, removed in round 2: norm 9 over 6",
        "c7, removed in round 2: norm 9 over 6",
    ]
    shapes = (
        "['attacker', 'removed'].map((kind) => document.querySelector(`.mark.${kind}`).getAttribute('d'))"
    )
    assert window.value(f"new Set({shapes}).size") == 2
    assert column(window, "#detection", 4) == ["norm 9 over 6"] * 2


def test_a_choice_among_detectors_and_scales_redraws_the_scores(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    line = "document.querySelector('#detection .chart .line.honest').getAttribute('d')"
    norm = window.value(line)
    window.click("#detection [data-key='detector direction']")
    assert window.texts("#detection figcaption h3") == ["Score “direction”"]
    assert window.texts("#detection [aria-pressed=true]") == ["direction"]
    window.click("#detection [data-key='detector norm']")
    assert window.value(line) == norm
    window.click("#detection [data-key=log]")
    assert window.value(line) != norm
    assert window.value("document.activeElement.textContent") == "log scale"


def test_tables_sort_and_filter(window: Browser, tmp_path: Path) -> None:
    story = a_run()
    assert story.course is not None
    window.open(saved(story, tmp_path))
    window.click("#clients [data-key='clients sort 4']")
    known = [client for client in story.course.clients if client.personal is not None]
    down = [c.name for c in sorted(known, key=lambda c: -float(c.personal or 0))]
    assert column(window, "#clients", 1) == [*down, "c6", "c7"]
    window.click("#clients [data-key='clients sort 4']")
    assert column(window, "#clients", 1) == [*reversed(down), "c6", "c7"]
    assert window.texts("#clients [aria-sort=ascending]") == ["personal↑"]
    window.type("#clients input", "Attacker")
    assert column(window, "#clients", 1) == ["c6", "c7"]
    assert window.texts("#clients .note") == ["2 of 8 clients"]


def test_a_chosen_client_is_shown_everywhere_and_by_its_address(window: Browser, tmp_path: Path) -> None:
    path = saved(a_run(), tmp_path)
    window.open(path)
    window.click("#clients tbody tr:nth-child(3) td")
    window.wait(f"{HASH} === '#client=c2'")
    shown = [
        window.texts(".chip"),
        window.texts("#accuracy .label.own"),
        window.texts("tr.chosen th"),
        window.texts(".side h3"),
    ]
    assert shown == [["c2 ✕"], ["c2", "c2"], ["c2"], ["What c2’s model is made of"]]
    window.open(path, "#client=c2&round=1&at=clients")
    assert shown == [
        window.texts(".chip"),
        window.texts("#accuracy .label.own"),
        window.texts("tr.chosen th"),
        window.texts(".side h3"),
    ]
    assert window.texts("#mixing output") == ["round 1 of 5"]
    window.wait("Math.abs(document.querySelector('#clients').getBoundingClientRect().top) < 200")
    window.click(".chip")
    assert window.texts(".chip") == []


def test_a_grids_field_opens_its_run_and_leads_back(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_grid(), tmp_path))
    assert window.texts(".fields td")[:3] == ["50.0± 1.5paper 49.0", "60.0± 1.5paper 59.0", "60.0ipm"]
    assert window.texts(".fields .empty") == ["not yet"]
    window.type("[data-key='field fedcap/no attack']", ENTER)
    window.wait("document.querySelector('h1').textContent === 'fedcap · no attack · seed 0'")
    window.wait("document.querySelectorAll('.line.personal').length > 0")
    window.click(".cell-bar .choice-row a:nth-of-type(2)")
    window.wait("document.querySelector('h1').textContent === 'fedcap · no attack · seed 1'")
    window.wait("document.activeElement.className === 'back'")
    window.press(ENTER)
    window.wait("document.querySelector('h1').textContent === 'a grid'")
    assert window.value("document.activeElement.dataset.key") == "field fedcap/no attack"


def test_an_address_opens_a_run_of_a_grid(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_grid(), tmp_path), "#cell=fedavg/ipm/1&client=c3&round=2")
    assert window.texts("h1") == ["fedavg · ipm · seed 1"]
    assert window.texts(".chip") == ["c3 ✕"]
    assert window.texts("#mixing output") == ["round 2 of 5"]


def test_tables_are_saved_as_csv_and_pictures_as_svg_that_stands_alone(
    window: Browser, tmp_path: Path
) -> None:
    window.open(saved(a_run(names=HOSTILE), tmp_path))
    rows = list(csv.reader(io.StringIO(window.download("#clients .save"))))
    assert rows[0][:3] == ["client", "role", "state"]
    assert [row[0] for row in rows[1:5]] == [HOSTILE[0], HOSTILE[1], "'=1+1", HOSTILE[3]]
    for picture in ("#accuracy", "#detection", "#mixing", "#cost"):
        drawn = ElementTree.fromstring(window.download(f"{picture} figcaption .save"))
        tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in drawn.iter()}
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert tags <= {
            "svg",
            "g",
            "path",
            "line",
            "rect",
            "text",
            "title",
            "image",
            "defs",
            "linearGradient",
            "stop",
        }
        assert all(
            "stroke" in element.attrib and "class" not in element.attrib
            for element in drawn.iter("{http://www.w3.org/2000/svg}path")
        )
    assert window.download("#about .command .save") == 'name = "fedcap"\n'
    window.open(saved(a_grid(), tmp_path))
    assert "50.0" in window.download("#map .tools .save:nth-child(2)")
    assert "fedavg,ipm,60,1.5" in window.download("#map .tools .save:nth-child(1)")


def test_hostile_names_and_reasons_stay_text(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(names=HOSTILE, reason=HOSTILE[1] * 50_000), tmp_path))
    window.click("#clients tbody tr:nth-child(1) td")
    assert window.texts("#clients tbody th")[:4] == list(HOSTILE)
    assert window.value("document.querySelectorAll('img, main script').length") == 0
    assert window.value("document.documentElement.scrollHeight") < 9000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction_alone_and_dark_is_dark(
    window: Browser, tmp_path: Path, scheme: str
) -> None:
    window.size(360, 740)
    window.prefers(color_scheme=scheme)
    for story in (a_run(names=HOSTILE), a_grid()):
        window.open(saved(story, tmp_path))
        assert window.value(WIDTHS) == [360, 360]
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


@pytest.mark.parametrize("clients", [4, 300])
def test_few_and_many_clients_and_one_round_are_drawn(window: Browser, tmp_path: Path, clients: int) -> None:
    window.open(saved(a_run(clients=clients, rounds=1), tmp_path))
    assert len(window.texts("#clients tbody tr")) == min(clients, 40)
    assert window.value(
        "[...document.querySelectorAll('.line.personal')].every((it) => it.getBBox().width > 5)"
    )


def test_a_run_without_any_evaluation_or_round_says_what_there_is(window: Browser, tmp_path: Path) -> None:
    story = a_run()
    assert story.course is not None
    bare = replace(
        story.course, accuracy=None, local=None, scores=[], events=[], attack=None, mixing=None, costs=None
    )
    for course in (bare, None):
        window.open(saved(replace(story, course=course, state="unfinished", played=0), tmp_path))
        assert window.texts(".state") == ["0 of 5 rounds so far"]
        assert window.value("document.querySelectorAll('section:not([hidden])').length") == (
            3 if course else 1
        )


def test_printing_shows_everything_in_light_and_nothing_to_press(window: Browser, tmp_path: Path) -> None:
    window.open(saved(a_run(), tmp_path))
    light = window.value(PIXELS)
    window.click("[data-key=theme]")
    dark = window.value(PIXELS)
    is_open = "[...document.querySelectorAll('details')].every((it) => it.open)"
    window.run(f"addEventListener('beforeprint', () => (window.printed = [{PIXELS}, {is_open}]))")
    window.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert window.value("window.printed") == [light, True]
    assert light != dark == window.value(PIXELS)
    window.command("Emulation.setEmulatedMedia", media="print")
    pressed = "[...document.querySelectorAll('button:not(th button), nav, input')]"
    assert not window.value(f"{pressed}.some((it) => it.checkVisibility())")
    assert window.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    window.size(718, 1000)  # A4 without its margins
    assert window.value(WIDTHS) == [718, 718]
    window.command("Emulation.setEmulatedMedia", media="")


def test_a_live_page_follows_and_keeps_what_its_reader_chose(window: Browser) -> None:
    told = {"rounds": 2}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            story = replace(a_run(rounds=told["rounds"]), state="unfinished", planned=9)
            version = f'"{told["rounds"]}"'
            same = self.headers.get("If-None-Match") == version
            body = packed(story) if self.path == "/story.json" else page(packed(story), live="story.json")
            self.send_response(304 if same else 200)
            self.send_header("ETag", version)
            self.end_headers()
            self.wfile.write(b"" if same else body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        window.open(f"http://127.0.0.1:{server.server_port}/")
        window.type("#clients input", "c1")
        window.run("scrollTo({top: 900, behavior: 'instant'})")
        told["rounds"] = 4
        window.wait("document.querySelector('#mixing output').textContent === 'round 4 of 4'")
        assert window.texts(".live") == ["● live"]
        assert window.texts(".state") == ["4 of 9 rounds so far"]
        assert column(window, "#clients", 1) == ["c1"]
        assert window.value("[document.activeElement.value, scrollY]") == ["c1", 900]
        window.type("#mixing input", LEFT)
        told["rounds"] = 6
        window.wait("document.querySelector('#mixing output').textContent === 'round 3 of 6'")
    finally:
        server.shutdown()
        server.server_close()
