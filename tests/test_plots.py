"""Figures for papers: which there are, what they show, and their formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from grid_tools import TINY, Here
from helpers import call
from run_tools import SMALL

import fedcap
from fedcap.report.model import Report
from fedcap.report.page import build_report
from fedcap.report.plots import plots_of

HEADS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plots") / "run"
    fedcap.Experiment(**SMALL | {"attack": {"name": "ipm", "epsilon": 500}, "participation": 1.0}).run(
        out=out
    )
    return out


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plots") / "grid"
    fedcap.Grid(methods=["fedavg", "fedcap"], attacks=["none", "ipm"], seeds="0-1", **TINY).run(
        out=out, engine=Here()
    )
    return out


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., matplotlib.figure.Figure]:
    """Return a function that draws a figure of a report and returns the figure that was saved."""
    figures: list[Any] = []
    save = matplotlib.figure.Figure.savefig

    def keep(figure: Any, *arguments: Any, **more: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **more)

    def draw(report: Report, kind: str, *rounds: Any) -> matplotlib.figure.Figure:
        figures.clear()
        plots_of(report)[kind].draw(tmp_path / "figure.png", *rounds)
        return figures[0]

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    return draw


def curve(axes: Any, label: str) -> list[float]:
    (line,) = (line for line in axes.get_lines() if line.get_label() == label)
    return list(line.get_ydata())


def test_a_directory_says_which_figures_it_has(
    run: Path, grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory, names in (
        (run, ["accuracy", "scores", "mixing", "attack", "clients", "cost"]),
        (grid, ["map", "curves", "worst"]),
    ):
        code, out, err = call(capsys, "plot", directory, "--json")
        assert (code, err) == (0, "")
        assert list(json.loads(out)) == names
        assert [line.split()[0] for line in call(capsys, "plot", directory)[1].splitlines()] == names


def test_a_figure_has_the_format_of_its_ending_or_all_three_and_a_name_by_default(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "plot", run, "accuracy", "-o", "one.svg")[:2] == (0, "Saved: one.svg\n")
    code, out, _ = call(capsys, "plot", run, "attack", "-o", "all", "--json")
    assert (code, json.loads(out)) == (0, ["all.png", "all.pdf", "all.svg"])
    assert call(capsys, "plot", run, "attack")[:2] == (0, "Saved: run-attack.png\n")
    written = {"one.svg", "all.png", "all.pdf", "all.svg", "run-attack.png"}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert all(Path(name).read_bytes().startswith(HEADS[Path(name).suffix]) for name in written)


def test_accuracy_is_that_of_the_records(run: Path, drawn: Any) -> None:
    records = fedcap.read(run).rounds
    axes = drawn(build_report(run), "accuracy").axes[0]
    for reading in ("personal", "shared"):
        recorded = [getattr(record.accuracy, reading) for record in records]
        assert curve(axes, f"{reading}, mean") == pytest.approx(recorded, abs=0.01)


def test_scores_have_a_line_per_client_the_limit_and_a_cross_for_each_removal(run: Path, drawn: Any) -> None:
    found = fedcap.read(run)
    axes = drawn(build_report(run), "scores").axes[0]
    assert curve(axes, "limit") == [record.limits["norm"] for record in found.rounds]
    scored = {client for record in found.rounds for client in record.norms}
    lines = [line for line in axes.get_lines() if line.get_marker() != "x"]
    assert len(lines) == len(scored) + 1
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert found.removed
    assert len(crosses) == len(found.removed)
    places = sorted(float(line.get_xdata()[0]) for line in crosses)
    assert places == sorted(float(removal.round) for removal in found.removed.values())
    dashed = [line for line in lines if line.get_linestyle() == "--"]
    assert len(dashed) == len(found.provenance.malicious)  # they differ by more than their colour


def test_mixing_shows_the_rounds_that_were_chosen(run: Path, drawn: Any) -> None:
    report = build_report(run)
    assert report.run is not None
    assert report.run.mixing is not None
    figure = drawn(report, "mixing", [3])
    assert [axes.get_title() for axes in figure.axes[:-1]] == ["round 3"]
    (image,) = figure.axes[0].get_images()
    expected = report.run.mixing.weights[list(report.run.mixing.rounds).index(3)]
    np.testing.assert_allclose(np.ma.filled(image.get_array(), np.nan), expected)


def test_cost_adds_up(run: Path, drawn: Any) -> None:
    records = fedcap.read(run).rounds
    seconds, sent = drawn(build_report(run), "cost").axes
    tops: dict[float, float] = {}
    for bar in seconds.patches:
        middle = round(bar.get_x() + bar.get_width() / 2)
        tops[middle] = max(tops.get(middle, 0.0), bar.get_y() + bar.get_height())
    parts = ("train", "evaluate", "attack", "server")
    for record in records:
        spent = sum(getattr(record.seconds, part) for part in parts)
        assert tops[record.round] == pytest.approx(spent, abs=1e-3)
    assert [bar.get_height() for bar in sent.patches] == pytest.approx([r.bytes / 1e6 for r in records])


def test_clients_are_sorted_by_their_accuracy(run: Path, drawn: Any) -> None:
    axes = drawn(build_report(run), "clients").axes[0]
    names = [label.get_text() for label in axes.get_xticklabels()]
    accuracy = {client.id: client for client in fedcap.read(run).clients if not client.malicious}
    assert sorted(names) == sorted(accuracy)
    best = [max(accuracy[name].personal or 0.0, accuracy[name].shared or 0.0) for name in names]
    assert best == sorted(best)


def test_curves_of_a_grid_are_means_over_seeds(grid: Path, drawn: Any) -> None:
    report = build_report(grid)
    figure = drawn(report, "curves")
    assert [axes.get_title() for axes in figure.axes] == ["no attack", "ipm"]
    runs = [fedcap.read(path) for path in (grid / "cells").iterdir()]
    own = [r for r in runs if (r.settings.method.name, r.settings.attack.name) == ("fedavg", "ipm")]
    assert len(own) == 2
    ends = [max(run.result.tacc_shared or 0.0, run.result.tacc_personal) for run in own if run.result]
    assert curve(figure.axes[1], "fedavg")[-1] == pytest.approx(np.mean(ends), abs=0.01)


def test_a_round_without_mixing_weights_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "plot", run, "mixing", "--rounds", "9")
    assert (code, err) == (2, "fedcap: mixing has no round 9 (it has 2 to 3)\n")


def test_names_that_look_like_mathematics_or_scripts_stay_text(run: Path, drawn: Any) -> None:
    report = build_report(run)
    assert report.run is not None
    names = ["$\\frac{1}{0}$", "<script>", "a_b^c", "$x", "%s", "\\n"]
    clients = [replace(one, name=name) for one, name in zip(report.run.clients, names, strict=True)]
    hostile = replace(report, run=replace(report.run, clients=clients))
    labels = drawn(hostile, "clients").axes[0].get_xticklabels()
    honest = {client.name for client in clients if client.role == "honest"}
    assert {label.get_text() for label in labels} == honest
    drawn(hostile, "mixing")
    drawn(hostile, "scores")
