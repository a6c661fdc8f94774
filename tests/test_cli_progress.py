"""Progress where there is no terminal: a plain line now and then, with the time left; none if it is quick."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcap.cli import main, progress
from fedcap.cli.progress import DownloadProgress, PlainLines, duration


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
    lines = PlainLines(clock)
    printed = []
    for second in range(101):
        clock.now = 100.0 + second
        lines.show(f"round {second}", second, 100)
        if said := capsys.readouterr().err:
            printed.append((second, said))
    assert printed == [
        (10, "fedcap: round 10, about 1 min 30 s left\n"),
        (40, "fedcap: round 40, about 1 min 0 s left\n"),
        (70, "fedcap: round 70, about 30 s left\n"),
    ]


def test_the_pace_counts_only_what_was_done_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = PlainLines(clock)
    lines.show("resumed", 50, 100)
    clock.now += 20
    lines.show("round 60", 60, 100)
    assert capsys.readouterr().err == "fedcap: round 60, about 1 min 20 s left\n"


def test_nothing_is_said_of_the_time_left_if_nothing_is_done_or_the_end_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    lines = PlainLines(clock)
    for total in (None, 15):
        clock.now += 40
        lines.show("at it", 0 if total else 5, total)
        assert capsys.readouterr().err == "fedcap: at it\n"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_a_time_is_told_in_two_units_at_most(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_download_tells_megabytes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with DownloadProgress() as shown:
        shown("a.tar.gz", 45_000_000, 170_000_000)
    assert capsys.readouterr().err == "fedcap: a.tar.gz, 45 of 170 MB\n"


@pytest.mark.parametrize(
    ("flags", "lines"), [([], 3), (["--json"], 3), (["--quiet"], 0), (["-q", "--json"], 0)], ids=str
)
def test_a_slow_run_tells_its_round_on_stderr_unless_it_is_to_be_quiet(
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
