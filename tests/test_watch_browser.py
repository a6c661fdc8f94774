"""The live page in a browser: it follows a run to its end, and what is awaited, without a reload."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from browser import MISSING, Browser, browser, is_there
from grid_tools import TINY, Here
from page_tools import a_grid, a_run

import fedcap
from fedcap.report.story import Story
from fedcap.report.story.series import Course
from fedcap.report.watch import Watch

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not is_there(), reason=MISSING)]
RUN = ["--attack", "ipm", "--rounds", "12", "--set", "dataset.samples=30", "--workers", "1", "-q"]

HURRY = """
window.delays = [];
const real = setTimeout;
window.setTimeout = (act, wait) => real(act, wait >= 1500 ? (delays.push(wait), 50) : wait);
"""
"""Notes how long the page means to wait before it asks again, and lets it wait no longer than that."""


@pytest.fixture
def window() -> Iterator[Browser]:
    with browser() as window:
        window.size(1100, 900)
        yield window


def test_the_page_follows_a_run_from_before_its_start_to_its_end_without_a_reload(
    window: Browser, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with Watch(out) as watch:
        window.open(watch.address)
        assert "does not exist yet" in window.value("document.querySelector('.lead').textContent")
        window.run("window.untouched = true")
        command = [sys.executable, "-m", "fedcap", "run", "--dataset", "digits", *RUN, "--out", str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            window.wait("document.querySelector('.lead').textContent.includes('so far')", 30)
            window.wait("document.querySelector('.live').textContent.includes('finished')", 60)
            assert process.wait(10) == 0
        assert window.value("window.untouched") is True
        assert "12 rounds" in window.value("document.querySelector('.lead').textContent")
        assert window.value("document.querySelectorAll('#accuracy svg').length") >= 1
        assert window.value("!document.querySelector('#mixing').hidden")
        told = fedcap.read(out).result
        assert told is not None
        assert f"{told.tacc:.1f} %" in window.texts(".headlines .value")
        assert {address.rsplit("/", 1)[0] + "/" for address in window.requests()} <= {
            watch.address,
            "about:/",
        }
        assert window.complaints() == []


def test_a_page_whose_server_is_gone_says_so(window: Browser, tmp_path: Path) -> None:
    with Watch(tmp_path / "run") as watch:
        window.open(watch.address)
    window.wait("document.querySelector('.live').textContent.includes('no connection')", 10)


def test_what_is_awaited_may_turn_out_to_be_a_grid(window: Browser, tmp_path: Path) -> None:
    with Watch(tmp_path / "grid") as watch:
        window.open(watch.address)
        fedcap.Grid(methods=["local", "fedavg"], attacks=["none", "ipm"], **TINY).run(
            out=tmp_path / "grid", engine=Here()
        )
        window.wait("document.querySelector('h1')?.textContent.includes('Comparison')", 20)
        time.sleep(0.1)
        assert window.complaints() == []


@contextmanager
def telling(window: Browser, folder: Path, first: Story) -> Iterator[Callable[[Story], None]]:
    """Open the live page of a story, and yield what has it tell another one."""
    told = [first]

    def tell(story: Story) -> None:
        told.append(story)
        (folder / "config.toml").write_text("#" * len(told))

    with Watch(folder, tell=lambda _: told[-1]) as watch:
        window.open(watch.address)
        window.run(HURRY)
        yield tell


def test_a_finished_run_is_asked_for_less_and_less_often_and_noticed_when_it_goes_on(
    window: Browser, tmp_path: Path
) -> None:
    with telling(window, tmp_path, a_run(rounds=2)) as tell:
        window.wait("delays.length > 6")
        waits = window.value("delays")
        assert waits == sorted(waits)
        assert [waits[0], waits[-2], waits[-1]] == [6000, 30000, 30000]
        assert window.texts(".live") == ["■ finished"]
        tell(replace(a_run(rounds=3), state="unfinished", planned=9))
        window.wait("document.querySelector('.live').textContent === '● live'")
        window.wait("delays.at(-1) === 1500")
        assert window.texts(".state") == ["3 of 9 rounds so far"]


def test_a_story_that_cannot_be_drawn_is_said_and_the_next_one_is_drawn(
    window: Browser, tmp_path: Path
) -> None:
    story = replace(a_run(), state="unfinished")
    assert story.course is not None
    broken: Course = replace(story.course, clients=None)  # type: ignore[arg-type]
    with telling(window, tmp_path, story) as tell:
        tell(replace(story, course=broken))
        window.wait("document.querySelector('.live').textContent === '✕ cannot be drawn'")
        assert len(window.complaints()) >= 1
        tell(replace(story, title="mended"))
        window.wait("document.querySelector('.live').textContent === '● live'")
        assert window.texts("h1") == ["mended"]


def test_a_run_whose_method_is_renamed_while_it_is_read_leads_back_to_the_grid(
    window: Browser, tmp_path: Path
) -> None:
    with telling(window, tmp_path, a_grid()) as tell:
        window.click("table.fields a")
        assert window.value("document.querySelectorAll('.cell-bar').length") == 1
        tell(a_grid(methods=("fedavg+mean", "fedcap")))
        window.wait("document.querySelector('table.fields')?.textContent.includes('fedavg+mean')")
        assert window.value("document.querySelectorAll('.view').length") == 1
        assert window.value("document.querySelectorAll('.cell-bar').length") == 0
        assert window.complaints() == []


def test_what_is_open_stays_open_while_a_grid_goes_on(window: Browser, tmp_path: Path) -> None:
    state = "[...document.querySelectorAll('details')].map((it) => it.open)"
    with telling(window, tmp_path, a_grid()) as tell:
        window.run("document.querySelectorAll('details').forEach((it) => (it.open = !it.open))")
        turned = window.value(state)
        tell(replace(a_grid(), title="another"))
        window.wait("document.querySelector('h1').textContent === 'another'")
        assert window.value(state) == turned
        assert turned == [False, True]
