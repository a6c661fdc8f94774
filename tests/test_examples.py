"""The examples run, with fewer rounds and samples."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grid_tools import FLAGS
from helpers import call
from view_tools import calibrated, cosine, seen

import fedcap

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALLER = """
import runpy, sys
import fedcap
from grid_tools import TINY
Grid = fedcap.Grid
fedcap.Grid = lambda **given: Grid(**given | TINY | {"seeds": 0})
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_the_example_of_a_method_compares_it_under_every_attack(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SMALLER, str(EXAMPLES / "own_method.py"), str(tmp_path / "out")]
    path = f"{Path(__file__).parent}:{Path(fedcap.__file__).parents[1]}"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": path})
    assert done.stderr == ""
    rows = [line for line in done.stdout.splitlines() if line.startswith("| own_method:Cautious |")]
    assert rows
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 3 * (1 + len(fedcap.attacks.names()))
    assert not list((tmp_path / "out" / "failed").iterdir())


@pytest.mark.slow
def test_the_example_of_a_grid_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--seed", "0", "--json", "-q", "--out", tmp_path]
    code, out, err = call(capsys, "compare", EXAMPLES / "grid.toml", *FLAGS, *flags)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["runs"], found["done"]) == (24, 24)
    methods = {row["method"] for row in found["rows"]}
    assert methods == {
        "local",
        "fedcap",
        *(f"{m}+{r}" for m in ("fedavg", "ditto") for r in ("mean", "geometric-median")),
    }


def test_the_example_of_an_attack_imitates_a_group_and_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    cells = fedcap.Grid.read(EXAMPLES / "own_attack.toml", {}, {"rounds": 3, "workers": 1}).cells()
    assert len(cells) == 30
    attacked = next(c for c in cells if (c.place["method"], c.place["attack"]) == ("hardened", "crowd"))
    result = attacked.experiment.run()
    assert (result.fpr, result.fnr) == (0, 100)

    crowd = replace(attacked.experiment.adversary, most=100.0)
    crowd.own.extend(attacked.experiment.adversary.own)
    view = seen(columns=13_706, scale=0.05)
    crowd.apply(view)
    rows = calibrated(view, view.updates)
    for row in rows[5:]:  # no client is similar to the first honest one, which is a group of one
        assert cosine(row, rows[0]) == pytest.approx(0.9, abs=1e-3)
        assert np.linalg.norm(row) == pytest.approx(np.linalg.norm(rows[0]), rel=1e-3)
