"""A user's network: lazy layers get their shapes, and exceptions have the user's traceback."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import refused, without_times
from torch import nn

import fedcap
from fedcap import models
from fedcap.training import ModelError, Network, WorkerError, fresh_network, make_pool

OWN = """
import torch
from torch import nn

def lazy():
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(16), nn.ReLU(),
                         nn.LazyBatchNorm1d(), nn.LazyLinear(10))

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.spare = nn.LazyLinear(10), nn.LazyLinear(3)
    def forward(self, x):
        return self.body(x.flatten(1))

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)
    def forward(self, x):
        return self.body(x.flatten(1))

class BadInit(Base):
    def __init__(self):
        super().__init__()
        raise ValueError("no such layer")

class BadForward(Base):
    def forward(self, x):
        raise ValueError("x is odd")

class BadInTraining(Base):
    def forward(self, x):
        out = super().forward(x)
        return (out, out) if self.training else out

class WiderInTraining(Base):
    def forward(self, x):
        out = super().forward(x)
        return out.repeat(1, 2) if self.training else out

class Detached(Base):
    def forward(self, x):
        return super().forward(x).detach()

class Frozen(Base):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)

class Late(Base):
    def forward(self, x):
        if self.training and x.abs().sum() > 0:
            raise ValueError("only with real data")
        return super().forward(x)

class LateShape(Base):
    def forward(self, x):
        out = super().forward(x)
        return out[:, :7] if x.abs().sum() > 0 and self.training else out

class Chatty(Base):
    def __init__(self):
        super().__init__()
        print("building")
    def forward(self, x):
        print("forward")
        return super().forward(x)

print("imported")
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_bugs.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedcap", "run", "--rounds", "1", "--method", "fedavg", *arguments]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_lazy_layers_get_their_shapes_from_the_data() -> None:
    build = models.builder("own_bugs:lazy", (1, 8, 8), 10)
    module = build()
    assert [type(layer).__name__ for layer in module] == [
        "Conv2d",
        "ReLU",
        "Flatten",
        "Linear",
        "ReLU",
        "BatchNorm1d",
        "Linear",
    ]
    assert module[3].in_features == 4 * 6 * 6
    assert module.training
    assert bool((module[5].running_mean == 0).all())
    assert bool((module[5].running_var == 1).all())


def test_lazy_layers_start_from_the_seed_in_every_process() -> None:
    build = models.builder("own_bugs:lazy", (1, 8, 8), 10)
    first = fresh_network(build, 3).weights
    torch.manual_seed(99)
    assert torch.equal(fresh_network(pickle.loads(pickle.dumps(build)), 3).weights, first)
    assert not torch.equal(fresh_network(build, 4).weights, first)
    settings = {"rounds": 2, "model": "own_bugs:lazy", "training": {"epochs": 1}}
    alone = fedcap.Experiment(workers=1, **settings).run()
    with make_pool(2) as pool:
        assert without_times(fedcap.Experiment(**settings).run(pool=pool)) == without_times(alone)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Unused", "lazy-layer"),
        ("BadInit", "user-code"),
        (
            "BadForward",
            "user-code",
        ),
        ("BadInTraining", "model-shape"),
        (
            "WiderInTraining",
            "model-shape",
        ),
        ("Detached", "user-code"),
        ("Frozen", "no-weights"),
    ],
)
def test_a_bug_is_found_before_the_run_and_shown_as_the_models(name: str, code: str) -> None:
    with refused(code):
        fedcap.Experiment(model=f"own_bugs:{name}", rounds=1, workers=1).run(out="run")
    assert not Path("run").exists()


@pytest.mark.parametrize(("workers", "method"), [(1, "fedavg"), (1, "fedrod"), (2, "fedcap")])
def test_a_bug_that_only_real_data_shows_names_the_model_and_the_client(workers: int, method: str) -> None:
    experiment = fedcap.Experiment(model="own_bugs:Late", method=method, rounds=1, workers=workers)
    with pytest.raises(
        WorkerError, match=r"^client \d+: your model own_bugs:Late failed in forward: Val"
    ) as bug:
        experiment.run()
    assert "only with real data" in str(bug.value)


def test_a_network_with_another_output_shape_in_training_is_an_error() -> None:
    experiment = fedcap.Experiment(model="own_bugs:LateShape", method="fedavg", rounds=1, workers=1)
    with pytest.raises(WorkerError, match=r"own_bugs:LateShape answers 10 inputs with \(10, 7\)"):
        experiment.run()
    module = nn.Linear(3, 2)
    network = Network(module)
    assert network.answer(torch.zeros(4, 3)).shape == (4, 2)
    network.module = nn.Linear(3, 5)
    with pytest.raises(
        ModelError, match=r"model Linear answers 4 inputs with \(4, 5\): it should be \(4, 2\)"
    ):
        network.answer(torch.zeros(4, 3))


@pytest.mark.slow
def test_the_command_line_shows_a_bug_in_one_line_and_where_on_demand() -> None:
    said = "fedcap: your model own_bugs:BadForward failed in forward: ValueError: x is odd"
    plain = run("--model", "own_bugs:BadForward", "--workers", "1")
    assert (plain.returncode, plain.stdout) == (2, "")
    (line,) = (line for line in plain.stderr.splitlines() if line != "imported")
    assert line.startswith(said)
    assert line.endswith("(FEDCAP_DEBUG=1 prints the traceback)")
    debug = run("--model", "own_bugs:BadForward", "--workers", "1", FEDCAP_DEBUG="1")
    assert debug.returncode == 2
    assert 'own_bugs.py", line' in debug.stderr
    assert 'raise ValueError("x is odd")' in debug.stderr
    assert debug.stderr.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.slow
def test_a_bug_in_training_is_one_line_and_the_workers_traceback_on_demand(workers: str) -> None:
    plain = run("--model", "own_bugs:Late", "--workers", workers)
    (line,) = (line for line in plain.stderr.splitlines() if line != "imported")
    assert (plain.returncode, plain.stdout) == (1, "")
    assert "your model own_bugs:Late failed in forward: ValueError: only with real data" in line
    debug = run("--model", "own_bugs:Late", "--workers", workers, FEDCAP_DEBUG="1")
    assert debug.returncode == 1
    assert 'raise ValueError("only with real data")' in debug.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.slow
def test_what_a_model_prints_does_not_spoil_the_output(workers: str) -> None:
    found = run("--model", "own_bugs:Chatty", "--workers", workers, "--json", "--set", "training.epochs=1")
    assert found.returncode == 0
    assert json.loads(found.stdout)["rounds"] == 1
    assert {"imported", "building", "forward"} <= set(found.stderr.splitlines())
    again = run("--model", "own_bugs:Chatty", "--workers", workers, "--set", "training.epochs=1")
    assert again.stdout.splitlines()[0].startswith("digits · fedavg")
