"""The live page in a browser: it follows a run to its end, and what is awaited, without a reload."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import MISSING, Browser, browser, is_there
from grid_tools import TINY, Here

import fedcap
from fedcap.report.watch import Watch

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not is_there(), reason=MISSING)]
RUN = ["--attack", "ipm", "--rounds", "12", "--set", "dataset.samples=30", "--workers", "1", "-q"]


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
