"""The same components defined in a script, in a notebook and in a module give the same result."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import refused, without_times

import fedcap

THINGS = """
from dataclasses import dataclass
from torch import nn
from fedcap.aggregators import Aggregator
from fedcap.attacks import Attack
from fedcap.detection import Detector, Score
from fedcap.methods.fedavg import FedAvg

@dataclass(frozen=True)
class Louder(Attack):
    scale: float = 1.0

    def craft(self, view):
        return self.scale * view.updates[view.malicious]

@dataclass(frozen=True)
class Halves(Aggregator):
    def __call__(self, updates, weights=None, malicious=0):
        return updates.mean(dim=0) / 2

@dataclass(frozen=True)
class Length(Detector):
    limit: float = 0.35

    def score(self, view, memory):
        return [Score("length", view.norms, self.limit)], memory

@dataclass(frozen=True)
class Same(FedAvg):
    pass

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
RUNS = """
import json, sys
import fedcap

quick = {"rounds": 2, "training": {"epochs": 1}, "workers": 2}
method = {"name": "fedavg", "rule": Halves(), "detectors": (Length(),)}
runs = {
    "attack": {"method": "fedavg", "attack": Louder(scale=3)},
    "rule": {"method": method, "attack": Louder(scale=3)},
    "method": {"method": Same(), "model": network},
}
results = {}
for name in sys.argv[2:] or runs:
    print("run", name, file=sys.stderr, flush=True)
    out = f"{sys.argv[1]}/{name}"
    results[name] = json.loads(fedcap.Experiment(**runs[name], **quick).run(out=out).to_json())
print(json.dumps(results))
"""
SCRIPT = THINGS + RUNS
FALLBACK = "training in this process instead, one client at a time"


def run(arguments: list[str], text: str | None = None) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Run Python; return what it printed, and the lines it warned with in each run."""
    done = subprocess.run(
        [sys.executable, *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parts = [part.splitlines() for part in done.stderr.split("run ")[1:]]
    found = {
        name: {key: value for key, value in result.items() if not key.startswith("seconds")}
        for name, result in json.loads(done.stdout).items()
    }
    return found, {name: lines for name, *lines in parts}


@pytest.fixture
def by_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of the same runs with everything in a module, by names."""
    (tmp_path / "things_of_mine.py").write_text(THINGS)
    monkeypatch.syspath_prepend(tmp_path)
    quick = {"rounds": 2, "training": {"epochs": 1}, "workers": 1}
    attack = {"name": "things_of_mine:Louder", "scale": 3}
    rule = {"name": "fedavg", "rule": "things_of_mine:Halves", "detectors": ["things_of_mine:Length"]}
    runs: dict[str, dict[str, Any]] = {
        "attack": {"method": "fedavg", "attack": attack},
        "rule": {"method": rule, "attack": attack},
        "method": {"method": "things_of_mine:Same", "model": "things_of_mine:network"},
    }
    return {name: without_times(fedcap.Experiment(**runs[name], **quick).run()) for name in runs}


@pytest.mark.slow
def test_a_script_and_a_prompt_give_what_a_module_gives(by_import: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found, warned = run([str(script), str(tmp_path / "script")])
    assert found == by_import
    assert by_import["rule"]["removed"]
    assert warned["attack"] == []
    for name, what in (("rule", "Length"), ("method", "network")):
        assert len(warned[name]) == 1
        assert FALLBACK in warned[name][0]
        assert f"{what} is defined in __main__, where worker processes cannot find it" in warned[name][0]
    # Attacks are not sent to workers, so only the other parts are compared.
    prompt = ["-", str(tmp_path / "prompt"), "rule", "method"]
    expected = {name: by_import[name] for name in ("rule", "method")}
    found, warned = run(prompt, SCRIPT)
    assert found == expected
    assert [len(lines) for lines in warned.values()] == [1, 1]
    # The next session defines the same things, and finds its runs; changed ones are others.
    assert run(prompt, SCRIPT)[0] == expected
    changed = SCRIPT.replace("dim=0) / 2", "dim=0) / 3")
    done = subprocess.run(
        [sys.executable, *prompt],
        input=changed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "InputError" in done.stderr
    assert "holds another run" in done.stderr


def test_classes_of_a_bare_namespace_run_too(
    by_import: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    space: dict[str, Any] = {}
    exec(THINGS, space)
    settings = {"rounds": 2, "training": {"epochs": 1}, "workers": 2}
    with caplog.at_level(logging.WARNING, "fedcap"):
        result = fedcap.Experiment(method=space["Same"], model=space["network"], **settings).run()
    assert without_times(result) == by_import["method"]
    assert [FALLBACK in record.message for record in caplog.records] == [True]


def test_a_name_in_the_script_itself_is_found_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(THINGS, space)
    for name in ("network", "Louder"):
        monkeypatch.setattr(sys.modules["__main__"], name, space[name], raising=False)
    experiment = fedcap.Experiment(model="__main__:network", attack="__main__:Louder", rounds=1, workers=2)
    assert experiment.model_name.startswith("<network from Python, ")
    assert experiment.attack.name == "<Louder from Python>"
    with caplog.at_level(logging.WARNING, "fedcap"):
        assert experiment.run().rounds == 1
    assert [FALLBACK in record.message for record in caplog.records] == [True]
    with refused("unknown-name"):
        fedcap.Experiment(model="__main__:netwrok")
