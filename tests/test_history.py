"""The records of a run: in memory while they are small, in a file beyond that; the same for their users."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from helpers import Killed, Killer, without_times
from run_tools import SMALL, assert_same

import fedcap
from fedcap.runs import History
from fedcap.runs import history as records


@pytest.fixture(params=[16 << 20, 0], ids=["memory", "file"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(records, "IN_MEMORY", request.param)
    return request.param


@pytest.fixture(scope="module")
def known() -> list[fedcap.runs.RoundRecord]:
    return list(fedcap.Experiment(**SMALL).run().history)


def test_a_history_is_the_sequence_of_its_records(limit: int, known) -> None:
    history = History()
    for number, record in enumerate(known, start=1):
        history.append(record)
        assert len(history) == number
        assert history[-1] == record
    assert history._records == ([] if limit == 0 else known)
    assert list(history) == known
    assert list(reversed(history)) == known[::-1]
    assert history[1:] == known[1:]
    assert history[-2] == known[-2]
    assert history == known
    assert history == History(known)
    assert history != known[:-1]
    assert History() != known
    with pytest.raises(IndexError):
        history[len(known)]
    for same in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert same == known


def test_a_run_whose_records_are_in_a_file_has_the_same_result(limit: int, known, tmp_path: Path) -> None:
    experiment = fedcap.Experiment(**SMALL)
    whole = experiment.run(out=tmp_path / "whole")
    assert whole.history._records == ([] if limit == 0 else list(whole.history))
    assert [record.scores for record in whole.history] == [record.scores for record in known]
    assert fedcap.read(tmp_path / "whole").result == whole
    with pytest.raises(Killed):
        experiment.run(out=tmp_path / "run", observers=[Killer(after=2)])
    assert without_times(experiment.run(out=tmp_path / "run")) == without_times(whole)
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_records_above_the_limit_move_to_a_file(monkeypatch: pytest.MonkeyPatch, known) -> None:
    monkeypatch.setattr(records, "IN_MEMORY", 3 * records.ENTRY_BYTES * 20)
    history = History(known * 200)
    assert len(history) == 200 * len(known)
    assert not history._records
    assert history[299] == known[299 % len(known)]
