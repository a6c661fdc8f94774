"""mixing.bin: the mixing weights in few bytes, correct after a kill at any moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_tools import federation, simulation_of
from helpers import Killed
from run_tools import SMALL

import fedcap
from fedcap.runs import MIXING, Mixing, RunDirectory, read
from fedcap.runs.mixing import read_frames


class Seen:
    """An observer that keeps the weights as they were before they were written."""

    def __init__(self) -> None:
        self.mixings: list[Mixing] = []

    def started(self, simulation: Any) -> None:
        pass

    def round_done(self, simulation: Any, record: Any) -> None:
        if simulation.mixing is not None:
            self.mixings.append(simulation.mixing)

    def finished(self, result: Any) -> None:
        pass


def mixing(number: int, names: str = "abc") -> Mixing:
    weights = np.random.default_rng(number).dirichlet(np.ones(len(names)), len(names))
    return Mixing(number, list(names), list(names), weights)


def write(path: Path, *mixings: Mixing) -> Path:
    path.write_bytes(b"".join(each.to_frame() for each in mixings))
    return path


def test_weights_come_back_to_a_510th_of_their_rows_largest(tmp_path: Path) -> None:
    seen = Seen()
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[seen])
    kept = read(tmp_path / "run").mixings
    assert [each.round for each in kept] == [each.round for each in seen.mixings] == [2, 3]
    for before, after in zip(seen.mixings, kept, strict=True):
        assert (after.receivers, after.contributors) == (before.receivers, before.contributors)
        largest = before.weights.max(axis=1, keepdims=True)
        assert (np.abs(after.weights - before.weights) <= largest / 510 * 1.001).all()


def test_rows_are_receivers_and_columns_contributors(tmp_path: Path) -> None:
    settings = {**SMALL, "method": {"name": "fedcap", "phi": 0.25}, "participation": 0.5}
    fedcap.Experiment(**settings).run(out=tmp_path / "run")
    run = read(tmp_path / "run")
    for each in run.mixings:
        record, before = run.rounds[each.round - 1], run.rounds[each.round - 2]
        assert list(each.receivers) == list(record.participants)
        assert set(each.contributors) == set(before.participants) - before.removed.keys()
        for row, receiver in enumerate(each.receivers):
            assert each.weights[row].sum() == pytest.approx(1, abs=0.01)
            if receiver in each.contributors:  # a client's share in its own model is phi
                own = each.weights[row, list(each.contributors).index(receiver)]
                assert own == pytest.approx(0.25, abs=0.002)


def test_methods_that_mix_nothing_write_no_file(tmp_path: Path) -> None:
    fedcap.Experiment(**{**SMALL, "method": "fedavg", "rounds": 2}).run(out=tmp_path / "run")
    assert not (tmp_path / "run" / MIXING).exists()
    assert read(tmp_path / "run").mixings == []


def test_a_frame_that_is_cut_off_or_changed_is_left_out_with_all_after_it(tmp_path: Path) -> None:
    frames = [mixing(number).to_frame() for number in (2, 3, 4)]
    whole = b"".join(frames)
    path = tmp_path / MIXING
    for cut in range(1, len(frames[2]) + 1):
        path.write_bytes(whole[:-cut])
        assert [number for number, _ in read_frames(path)] == [2, 3]
    for place in range(len(frames[0]), len(frames[0]) + len(frames[1])):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert [number for number, _ in read_frames(path)] == [2]


def test_mixing_weights_that_are_not_finite_are_stored_as_zero() -> None:
    odd = Mixing(2, ["a", "b"], ["a", "b"], np.array([[np.nan, 1.0], [np.inf, -1.0]]))
    assert Mixing.from_frame(odd.to_frame()).weights.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_frames_after_the_last_recorded_round_are_ignored_and_dropped_on_resuming(tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL).run(out=tmp_path)
    directory = RunDirectory(tmp_path)
    whole = (tmp_path / MIXING).read_bytes()
    with open(tmp_path / MIXING, "ab") as file:
        file.write(mixing(4).to_frame() + mixing(5).to_frame()[:20])
    assert [each.round for each in directory.mixings()] == [2, 3]
    with directory:
        directory.keep_rounds(3)
    assert (tmp_path / MIXING).read_bytes() == whole
    with directory:
        directory.keep_rounds(2)
    assert [number for number, _ in read_frames(tmp_path / MIXING)] == [2]


def test_a_run_killed_inside_any_write_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = fedcap.Experiment(**{**SMALL, "rounds": 2})
    experiment.run(out=tmp_path / "whole")
    expected = (tmp_path / "whole" / MIXING).read_bytes()
    fsync, writes = os.fsync, 0

    def fsync_or_die(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - 7))
            raise Killed
        fsync(descriptor)

    while True:
        writes += 1
        left = writes
        out = tmp_path / str(writes)
        monkeypatch.setattr(os, "fsync", fsync_or_die)
        try:
            experiment.run(out=out)
            break
        except Killed:
            monkeypatch.setattr(os, "fsync", fsync)
            experiment.run(out=out)
            assert (out / MIXING).read_bytes() == expected, f"killed in write {writes}"
    assert writes > 6  # among them the frame, the line and the checkpoint of round 2


def test_a_federation_keeps_the_same_weights_as_its_simulation(tmp_path: Path) -> None:
    made = federation(tmp_path / "federation")
    with made.conductor() as conductor:
        conductor.run()
    simulation_of(made.plan).run(out=tmp_path / "simulation")
    kept = (made.run / MIXING).read_bytes()
    assert kept == (tmp_path / "simulation" / MIXING).read_bytes()
    assert [number for number, _ in read_frames(made.run / MIXING)] == [2, 3]


def test_a_killed_federation_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    made = federation(tmp_path / "one")
    with made.conductor() as conductor:
        conductor.run()
    again = federation(tmp_path / "other")
    with again.conductor() as conductor:
        conductor.play()
        conductor.play()
    with open(again.run / MIXING, "ab") as file:  # killed after the frame of round 3, before its line
        file.write(mixing(3).to_frame())
    with again.conductor() as conductor:
        conductor.run()
    assert (again.run / MIXING).read_bytes() == (made.run / MIXING).read_bytes()
