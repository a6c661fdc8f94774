"""Trackers: what they receive, that none can stop a run, and that a resumed run repeats nothing."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from federation_tools import federation
from helpers import Killed, Killer, call, refused
from run_tools import SMALL, assert_same

import fedcap
from fedcap.federation.run_files import tracked
from fedcap.runs import Result, RoundRecord, RunDirectory
from fedcap.trackers import Tracked, Tracker, make
from fedcap.trackers.csv_file import Csv

EXAMPLES = Path(__file__).parents[1] / "examples"


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "rounds.csv", newline="") as file:
        return list(csv.DictReader(file))


def timeless(found: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in found]


@dataclass
class Recording(Tracker):
    """Records the calls; fails in one round, if asked to."""

    fails: int = 0
    calls: list[object] = field(default_factory=list)

    def start(self, run: Tracked) -> None:
        self.calls.append([run.name, [record.round for record in run.history]])

    def log(self, record: RoundRecord) -> None:
        if record.round == self.fails:
            raise OSError(28, "No space left on device")
        self.calls.append(record.round)

    def end(self, result: Result | None) -> None:
        self.calls.append(None if result is None else result.rounds)


def test_a_csv_has_a_line_per_round_with_what_the_records_say(tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL, track="csv").run(out=tmp_path / "run")
    records = fedcap.read(tmp_path / "run").rounds
    found = rows(tmp_path / "run")
    assert [int(row["round"]) for row in found] == [1, 2, 3]
    for row, record in zip(found, records, strict=True):
        assert record.accuracy is not None
        assert float(row["accuracy/personal"]) == record.accuracy.personal
        assert float(row["accuracy/worst_client"]) == record.accuracy.worst_client
        assert int(row["clients/participants"]) == len(record.participants)
        assert int(row["bytes"]) == record.bytes
        assert float(row["limit/norm"]) == record.limits["norm"]


def test_a_csv_may_have_each_clients_figures(tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL, track=["csv(clients=true)"]).run(out=tmp_path / "run")
    records = fedcap.read(tmp_path / "run").rounds
    for row, record in zip(rows(tmp_path / "run"), records, strict=True):
        for client, norm in record.norms.items():
            assert float(row[f"client/{client}/norm"]) == norm


def test_a_column_that_comes_late_is_filled_in_above(tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL | {"eval_every": 2}, track=["csv"]).run(out=tmp_path / "run")
    measured = [bool(row["accuracy/personal"]) for row in rows(tmp_path / "run")]
    assert measured == [False, True, True]


def test_a_resumed_run_goes_on_without_doubled_lines_and_without_gaps(tmp_path: Path) -> None:
    settings = SMALL | {"rounds": 5, "checkpoint_every": 2, "track": ["csv"]}
    fedcap.Experiment(**settings).run(out=tmp_path / "whole")
    with pytest.raises(Killed):  # in round 4, before the tracker gets it; the checkpoint has it
        fedcap.Experiment(**settings).run(out=tmp_path / "half", observers=[Killer(4)])
    assert len(rows(tmp_path / "half")) == 3
    fedcap.Experiment(**settings).run(out=tmp_path / "half")
    assert timeless(rows(tmp_path / "half")) == timeless(rows(tmp_path / "whole"))


def test_a_resumed_run_may_be_given_a_tracker_that_has_all_rounds_from_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Killed):
        fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Killer(2)])
    code, _, _ = call(capsys, "run", "--resume", tmp_path / "run", "--track", "csv", "-q")
    assert code == 0
    assert len(rows(tmp_path / "run")) == 3
    settings = RunDirectory(tmp_path / "run").settings()
    assert settings is not None
    assert settings.track == ["csv"]  # so that the next one to resume it has it too


def test_no_result_depends_on_a_tracker(tmp_path: Path) -> None:
    plain, tracked = fedcap.Experiment(**SMALL), fedcap.Experiment(**SMALL, track="csv")
    assert plain.digest() == tracked.digest()
    plain.run(out=tmp_path / "plain")
    tracked.run(out=tmp_path / "tracked")
    assert_same(tmp_path / "plain", tmp_path / "tracked")


def test_a_failing_tracker_is_reported_in_one_line_and_the_run_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing, well = Recording(fails=2), Recording()
    result = fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[failing, well])
    assert result.rounds == 3
    assert failing.calls == [["run", []], 1]
    assert well.calls == [["run", []], 1, 2, 3, 3]
    message = (
        "tracker Recording failed, the run continues without it: OSError: [Errno 28] No space left on device"
    )
    assert [record.getMessage() for record in caplog.records] == [message]


def test_a_tracker_is_ended_when_a_run_is_interrupted(tmp_path: Path) -> None:
    tracker = Recording()
    with pytest.raises(Killed):
        fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Killer(2), tracker])
    assert tracker.calls == [["run", []], 1, None]
    again = Recording()
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[again])
    assert again.calls == [["run", [1, 2]], 3, 3]


@pytest.mark.parametrize(
    ("track", "code"),
    [("csv(rows=3)", "unknown-option"), ("json:loads", "wrong-class"), (3, "wrong-type")],
)
def test_a_mistaken_tracker_is_refused_before_anything_starts(track: object, code: str) -> None:
    with refused(code):
        fedcap.Experiment(track=track)


def test_a_csv_tracker_without_a_directory_is_refused_before_any_observer_starts() -> None:
    tracker = Recording()
    with refused("missing-directory"):
        fedcap.Experiment(**SMALL, track="csv").run(observers=[tracker])
    assert tracker.calls == []


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_library_that_is_missing_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with refused("needs-extra"):
        make(name)


def test_the_example_of_a_tracker_of_ones_own_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "own_tracker", raising=False)
    flags = ["--rounds", 2, "--set", "dataset.samples=30", "--workers", 1, "--out", "run", "-q"]
    code, _, err = call(capsys, "run", "--track", "own_tracker:Beacon", *flags)
    assert code == 0
    tacc = [record.accuracy.best for record in fedcap.read("run").rounds if record.accuracy]
    assert err == f"round 1: {tacc[0]:.1f} %\nround 2: {tacc[1]:.1f} %\n"


def test_a_federation_is_tracked_and_goes_on_where_it_stood(tmp_path: Path) -> None:
    held = federation(tmp_path)
    with held.conductor() as conductor:
        conductor.play()  # a round that no tracker gets
    with (
        held.conductor() as conductor,
        tracked(held.plan, held.run, conductor.history, [Csv()]) as report,
    ):
        conductor.run(report)
    assert [int(row["round"]) for row in rows(held.run)] == [1, 2, 3]
    assert [row["clients/participants"] for row in rows(held.run)] == ["5"] * 3
