"""The pages of a run and of a grid: size, seconds to make them, and seconds until a browser shows them.

The records are made up and written by `fedcap.runs`: nothing is trained. Every run has mixing weights and
changes in every round, so real pages are smaller.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import report
from fedcap import Experiment
from fedcap.cli.report import report_on
from fedcap.files import write_aside
from fedcap.report.pack import pack
from fedcap.report.page import page
from fedcap.runs import (
    Accuracy,
    AttackStats,
    ClientAccuracy,
    Mixing,
    Outcome,
    Provenance,
    Reason,
    RoundRecord,
    RunDirectory,
    Seconds,
    read,
    summarise,
)
from fedcap.runs.outcome import CELLS, OUTCOME

ROUNDS, CLIENTS, ATTACKERS, LIMIT = 100, 36, 10, 6.0
METHODS = ("fedavg", "fedcap", "fedrod", "fedfomo", "ditto", "fltrust")
ATTACKS = ("none", "sign-flipping", "lie", "min-max", "min-sum", "ipm")
SCORES = ("norm", "robust-norm", "collusion", "direction")
SEEDS = 4
MOST_RUN, MOST_GRID, MOST_SECONDS = 500_000, 4_000_000, 0.5
"""The budgets: bytes of a run's page and of a grid's, seconds to first paint."""


def write_run(
    path: Path, rounds: int = ROUNDS, clients: int = CLIENTS, bad: int = ATTACKERS, evaluate: bool = True
) -> None:
    """Write the records of a made-up run of FedCAP in which one attacker is removed every other round."""
    draw = np.random.default_rng(0)
    names = [f"client-{number:03}" for number in range(clients)]
    attackers = names[:bad]
    settings = Experiment(attack="min-max", rounds=rounds).settings()
    with RunDirectory(path) as directory:
        directory.write_settings(settings)
        facts = Provenance({}, 1, 0, "0" * 64, "data", "partition", 1000, names, attackers, course="made up")
        directory.write_provenance(facts)
        records, there = [], list(names)
        for number in range(1, rounds + 1):
            record = _round(number, there, attackers, draw, evaluate)
            weights = draw.dirichlet(np.full(len(there), 3.0), len(there))
            directory.append(record, Mixing(number, there, there, weights) if number > 1 else None)
            records.append(record)
            there = [name for name in there if name not in record.removed]
        if evaluate:
            directory.write_result(summarise(records, names, attackers, detects=True))


def _round(
    number: int, there: list[str], bad: list[str], draw: np.random.Generator, evaluate: bool
) -> RoundRecord:
    honest = [name for name in there if name not in bad]
    level = 95 - 60 * np.exp(-number / 15)
    found = {
        name: ClientAccuracy(*(round(float(min(100, draw.normal(level, 4))) * 0.4) / 0.4 for _ in range(2)))
        for name in honest
    }
    personal = float(np.mean([own.personal for own in found.values()])) if found else 0.0
    scores = {score: {name: float(draw.normal(3, 0.4)) for name in there} for score in SCORES}
    out = [name for name in there if name in bad][:1] if number % 2 == 0 else []
    return RoundRecord(
        round=number,
        participants=there,
        asked=[],
        accuracy=Accuracy(personal - 3, personal, found) if evaluate else None,
        scores=scores,
        limits=dict.fromkeys(SCORES, LIMIT),
        weights_entropy=2.0 if number > 1 else None,
        refused={},
        bounded={},
        removed={name: Reason("norm", 7.1, LIMIT, f"norm 7.1 over {LIMIT:g}") for name in out},
        attack=AttackStats(4.0 + float(draw.random()), 2.0, -0.3) if set(there) & set(bad) else None,
        diverged=[],
        bytes=1_000_000,
        seconds=Seconds(*draw.random(5).tolist()),
    )


def write_grid(path: Path, seeds: int = SEEDS) -> int:
    """Write a made-up grid, whose runs differ only in their settings; return the number of runs."""
    first = path / "first"
    write_run(first)
    places = list(product(METHODS, ATTACKS, range(seeds)))
    for number, (method, attack, seed) in enumerate(places):
        cell = path / CELLS / f"{number:04}"
        shutil.copytree(first, cell)
        settings = Experiment(method=method, attack=attack, rounds=ROUNDS, seed=seed).settings()
        RunDirectory(cell).write_settings(settings)
        write_aside(cell / OUTCOME, Outcome.of(read(cell)).to_json())
    shutil.rmtree(first)
    return len(places)


def first_paint(path: Path) -> float | None:
    """Return the seconds until Chromium shows the page; None without Chromium."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from browser import browser, is_there

    if not is_there():
        return None
    with browser() as window:
        window.open(path)  # the first page also starts the renderer
        window.open(path)
        painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        return float(window.value(painted)) / 1000


def measured(what: str, folder: Path, budget: int) -> dict[str, object]:
    """Return size and seconds of the page of a directory."""
    began = time.perf_counter()
    content = page(pack(report_on(folder))).encode()
    took = time.perf_counter() - began
    (folder / "report.html").write_bytes(content)
    row = {"page of": what, "kB": len(content) / 1000, "budget, kB": budget // 1000, "made in, s": took}
    return {**row, "first paint, s": first_paint(folder / "report.html"), "its budget, s": MOST_SECONDS}


def mixing_cost(clients: int) -> dict[str, object]:
    """Return size and seconds of the record of a round's mixing weights."""
    names = [f"client-{number:03}" for number in range(clients)]
    made = Mixing(2, names, names, np.random.default_rng(0).dirichlet(np.full(clients, 3.0), clients))
    began = time.perf_counter()
    frame = made.to_frame()
    took = time.perf_counter() - began
    return {"clients": clients, "kB per round": len(frame) / 1000, "ms per round": 1000 * took}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, grid = Path(folder) / "run", Path(folder) / "grid"
        write_run(run)
        rows = [measured(f"a run, {ROUNDS} rounds × {CLIENTS} clients", run, MOST_RUN)]
        report.progress(rows[-1])
        count = write_grid(grid)
        rows.append(measured(f"a grid, {count} such runs", grid, MOST_GRID))
        report.progress(rows[-1])
    about = "The page that `fedcap report` writes, from made-up records; first paint in headless Chromium."
    report.write("page", "The page", rows, "one", about)
    kept = [mixing_cost(clients) for clients in (36, 100, 1000)]
    about = "The record of a round's mixing weights: clients × clients, a byte each, deflated."
    report.write("mixing", "Mixing weights in the records", kept, "one", about)
