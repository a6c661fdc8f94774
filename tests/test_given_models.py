"""Networks given from Python: a module, a function or a class, wherever it is defined."""

from __future__ import annotations

import copy
import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import refused, without_times
from python_tools import Net, linear
from torch import nn

import fedcap
from fedcap.cli import main
from fedcap.simulation import Simulation, make_pool

QUICK: dict[str, Any] = {"rounds": 1, "training": {"epochs": 1}, "workers": 1}


def start(**settings: Any) -> torch.Tensor:
    """Return the weights that all clients start from."""
    with make_pool(1) as pool:
        return Simulation(fedcap.Experiment(**QUICK | settings), pool).server.inspect().global_model


@pytest.mark.parametrize(("given", "name"), [(linear, "linear"), (Net, "Net")])
def test_what_can_be_imported_is_its_name(given: Any, name: str) -> None:
    experiment, named = (fedcap.Experiment(model=m) for m in (given, f"python_tools:{name}"))
    assert experiment.model_name == f"python_tools:{name}"
    assert experiment.digest() == named.digest()


def test_a_function_is_called_under_the_seed() -> None:
    by_name = fedcap.Experiment(model="python_tools:linear", **QUICK).run()
    assert without_times(fedcap.Experiment(model=lambda: linear(), **QUICK).run()) == without_times(by_name)
    assert not torch.equal(start(model=lambda: linear()), start(model=lambda: linear(), seed=1))


def test_a_module_is_the_common_start_whatever_the_seed() -> None:
    module = linear()
    weights = torch.cat([part.detach().flatten() for part in module.parameters()])
    assert torch.equal(start(model=module), weights)
    assert torch.equal(start(model=module, seed=1), weights)


def test_a_module_is_not_changed_by_the_run_nor_the_run_by_it() -> None:
    module = Net()
    original = copy.deepcopy(module)
    experiment = fedcap.Experiment(model=module, **QUICK)
    with torch.no_grad():
        module.head.weight.zero_()
    changed = copy.deepcopy(module.state_dict())
    result = experiment.run()
    assert all(torch.equal(module.state_dict()[key], value) for key, value in changed.items())
    assert without_times(fedcap.Experiment(model=original, **QUICK).run()) == without_times(result)
    assert fedcap.Experiment(model=original).model_name == experiment.model_name
    assert fedcap.Experiment(model=module).model_name != experiment.model_name


def test_a_module_goes_to_workers_and_gives_the_same_bits() -> None:
    module = Net()
    runs = [fedcap.Experiment(model=module, **QUICK | {"workers": workers}).run() for workers in (1, 2)]
    assert without_times(runs[0]) == without_times(runs[1])


def test_models_without_a_name_are_distinguished_by_their_label() -> None:
    first, second, wide = Net(), Net(), Net(20)
    names = [fedcap.Experiment(model=m).model_name for m in (first, second, wide)]
    assert all(name.startswith("<Net from Python, ") for name in names)
    assert len(set(names)) == 3
    assert fedcap.Experiment(model=copy.deepcopy(first)).model_name == names[0]
    built = {fedcap.Experiment(model=partial(Net, hidden)).model_name for hidden in (5, 6, 5)}
    assert len(built) == 2
    closed = [fedcap.Experiment(model=lambda hidden=hidden: Net(hidden)).model_name for hidden in (5, 6, 5)]
    assert closed[0] == closed[2] != closed[1]


def test_a_run_with_such_a_model_is_resumed_from_python_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, out = Net(), tmp_path / "run"
    result = fedcap.Experiment(model=module, **QUICK).run(out=out)
    name = tomllib.loads((out / "config.toml").read_text())["model"]
    assert name.startswith("<Net from Python, ")
    (out / "result.json").unlink()
    with pytest.raises(SystemExit) as stop:
        main(["run", "--resume", str(out)])
    assert stop.value.code == 2
    assert f"the model of this run, {name}, was given from Python" in capsys.readouterr().err
    assert without_times(fedcap.Experiment(model=module, **QUICK).run(out=out)) == without_times(result)
    with refused("other-run"):
        fedcap.Experiment(model=Net(), **QUICK).run(out=out)
    assert json.loads((out / "result.json").read_text())["rounds"] == 1


kept = linear()


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (3, "wrong-type"),
        (lambda: 3, "wrong-type"),
        (lambda: kept, "same-weights"),
        (lambda: nn.Sequential(kept, nn.ReLU()), "same-weights"),
        (nn.Linear(5, 10), "user-code"),
        (partial(Net, hidden="x"), "user-code"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), "model-shape"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_clear_line(model: Any, code: str) -> None:
    with refused(code) as error:
        fedcap.Experiment(model=model, **QUICK).run()
    assert "\n" not in str(error.value)


def test_a_module_with_lazy_layers_gets_its_shapes_from_the_data() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    result = fedcap.Experiment(model=lazy, rounds=1, training={"epochs": 1}, workers=1).run()
    assert [tuple(weight.shape) for weight in result.model("1").parameters()] == [(10, 64), (10,)]
    assert nn.parameter.is_lazy(lazy[1].weight)
