"""Progress: plain lines with the time left where there is no terminal, and live lines on one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fedcap.cli import main, progress
from fedcap.cli.progress import GridProgress, Progress
from fedcap.errors import duration
from fedcap.experiments.grid import Grid
from fedcap.experiments.store import GridStatus


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_line_comes_after_ten_seconds_and_then_one_every_thirty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = Progress(clock=clock)
    printed = []
    for second in range(101):
        clock.now = 100.0 + second
        progress.show(f"round {second}", second, 100)
        if line := capsys.readouterr().err:
            printed.append((second, line))
    assert printed == [
        (10, "fedcap: round 10, about 1 min 30 s left\n"),
        (40, "fedcap: round 40, about 1 min 0 s left\n"),
        (70, "fedcap: round 70, about 30 s left\n"),
    ]


def test_the_pace_counts_only_what_was_done_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress(clock=clock)
    progress.show("resumed", 50, 100)
    clock.now += 20
    progress.show("round 60", 60, 100)
    assert capsys.readouterr().err == "fedcap: round 60, about 1 min 20 s left\n"


def test_a_grid_shows_its_counts_and_each_run_in_progress(capsys: pytest.CaptureFixture[str]) -> None:
    cells = Grid(methods="fedavg,fedcap", rounds=4).cells()
    clock = Clock()
    with GridProgress(GridStatus(cells, {}, {}), clock=clock) as progress:
        progress.started(cells[0])
        progress.failed(cells[1], "for a reason")
        progress.progressed(cells[0], 1, 50.0)
        clock.now += 12
        progress.progressed(cells[0], 2, None)
    assert capsys.readouterr().err.splitlines() == [
        "fedcap: digits · fedcap · none · seed 0 failed: for a reason",
        "fedcap: 0 of 2 runs done, 1 failed, 1 in progress, about 12 s left;"
        " digits · fedavg · none · seed 0, round 2/4",
    ]


def test_rounds_of_an_earlier_session_do_not_make_a_grid_look_fast(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (cell,) = Grid(methods="fedavg", seed=0, attacks="none", rounds=30).cells()
    clock = Clock()
    progress = GridProgress(GridStatus([cell], {}, {}), clock=clock)
    progress.started(cell)
    clock.now += 12
    progress.progressed(cell, 21, None)
    assert ", about 1 min 48 s left;" in capsys.readouterr().err


@pytest.mark.parametrize(("columns", "encoding"), [(40, "utf-8"), (100, "utf-8"), (100, "ascii")])
def test_lines_on_a_terminal_fit_it(monkeypatch: pytest.MonkeyPatch, columns: int, encoding: str) -> None:
    shown = Progress(clock=Clock())
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding=encoding, errors="fedcap")
    shown._console = Console(file=screen, width=columns, force_terminal=True, color_system=None)
    shown._headline, shown._done, shown._total = "fedcap, round 3/30, accuracy 91.2 %, removed 6", 3.0, 30.0
    shown._lines = ["a run · of a long name · " * 5]
    shown._console.print(shown._rendered())
    screen.flush()
    first, second = raw.getvalue().decode(encoding).splitlines()
    assert len(first) <= columns
    assert len(second) <= columns
    assert first.startswith("fedcap, round 3/30" if columns == 40 else "##" if encoding == "ascii" else "██")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_a_time_has_two_units_at_most(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("flags", "lines"), [([], 3), (["--json"], 3), (["--quiet"], 0), (["-q", "--json"], 0)], ids=str
)
def test_a_slow_run_shows_its_round_on_stderr_unless_quiet(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: list[str],
    lines: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    quick = ["--rounds", "3", "--workers", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["run", "--attack", "ipm", *quick, *flags])
    assert not stop.value.code
    captured = capsys.readouterr()
    said = captured.err.splitlines()
    assert len(said) == lines
    assert "fedcap: " not in captured.out
    if said:
        assert said[0] == "fedcap: fedcap, round 0/3"
        assert said[1].startswith("fedcap: fedcap, round 1/3, accuracy ")
        assert ", removed 6" in said[1]
        assert said[1].endswith(" s left")
