"""Models as ONNX files: ONNX Runtime gives the probabilities of `predict`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from torch import Tensor, nn

import fedcap
from fedcap import methods, models
from fedcap.data.tables import Table
from fedcap.server.server import Server
from fedcap.simulation.export import exported
from fedcap.simulation.inputs import Inputs
from fedcap.simulation.models import TrainedModels
from fedcap.training import fresh_network

QUICK: dict[str, Any] = {"rounds": 1, "workers": 1, "method": "fedavg"}
NEEDS = "needs the extra onnx: make test-extras"


class Signal(nn.Module):
    """A user's network with operations that the package's networks do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv1d(2, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.memory = nn.GRU(8, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.nn.functional.gelu(self.norm(self.filter(x))).movedim(1, 2)
        return self.out(self.memory(steps)[0].mean(dim=1))


class Eigen(nn.Module):
    """A network with an operation that ONNX does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.linalg.eigvalsh(x.reshape(-1, 2, 2)).repeat(1, 2))


def session(content: bytes) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason=NEEDS)
    return runtime.InferenceSession(content, providers=["CPUExecutionProvider"])


def content_of(found: TrainedModels, client: str | None, reading: str = "personal") -> bytes:
    pytest.importorskip("onnxscript", reason=NEEDS)
    return exported(found, "digest", client, reading, ".onnx")[0]


def run_onnx(content: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(session(content).run(None, {"x": x})[0])


class Untrained:
    """The tensors of a run that has just started, without its directory."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def layout(self) -> None:
        return None

    def server(self) -> dict[str, Tensor]:
        return self._server.state_dict()

    def client_state(self, client: str) -> None:
        return None

    def scaling(self) -> dict[str, Tensor]:
        return {}


def untrained(model: str, shape: tuple[int, ...], pixels: bool) -> TrainedModels:
    """Return a global model with random weights, of a network of the package."""
    build, method, clients = models.builder(model, shape, 5), methods.make("fedavg"), ("1", "2")
    network = fresh_network(build, 3)
    server = Server(method, network.weights, network.layout, clients=clients)
    return TrainedModels(clients, method, build, Inputs(shape, tuple("abcde"), pixels), Untrained(server))


@pytest.mark.parametrize(
    ("model", "shape", "pixels"),
    [
        ("mlp", (7,), False),
        ("mlp", (3, 4, 5), True),
        ("cnn-digits", (1, 8, 8), True),
        ("cnn-cifar10", (3, 32, 32), True),
        ("cnn-emnist", (1, 28, 28), True),
        ("cnn-wisdm", (3, 1, 200), False),
        ("resnet18", (3, 32, 32), True),
    ],
)
def test_each_network_answers_as_predict_for_any_number_of_inputs(
    model: str, shape: tuple[int, ...], pixels: bool
) -> None:
    found = untrained(model, shape, pixels)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(9, *shape)).astype(np.float32)
    if pixels:
        x = draw.integers(0, 256, (9, *shape), dtype=np.uint8)
    expected = found.predict(None, x, "global").numpy()
    assert expected.std(axis=0).max() > 1e-4  # the network distinguishes these inputs
    content = content_of(found, None, "global")
    for rows in (9, 1, 2):
        assert run_onnx(content, x[:rows]) == pytest.approx(expected[:rows], abs=2e-6)


def test_the_network_list_above_is_complete() -> None:
    marks = test_each_network_answers_as_predict_for_any_number_of_inputs.pytestmark  # type: ignore[attr-defined]
    assert {model for model, _, _ in marks[0].args[1]} == set(models.registry.names())


def test_a_users_network_on_standardised_signals(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(3, 2, size=(90, 2, 20)).astype(np.float32)
    y = np.tile(["rest", "walk", "run"], 30)
    dataset = {"x": x, "y": y, "client": np.repeat(["u1", "u2", "u3"], 30), "standardise": True}
    result = fedcap.Experiment(dataset=dataset, model=Signal, **QUICK).run(out=tmp_path / "run")
    assert result.tacc is not None
    run = fedcap.read(tmp_path / "run")
    content = content_of(run.models, "u2")
    assert run_onnx(content, x[:7]) == pytest.approx(run.predict("u2", x[:7]).numpy(), abs=2e-6)
    other = run.predict("u1", x[:7]).numpy()
    assert np.abs(other - run.predict("u2", x[:7]).numpy()).max() > 1e-4


def test_a_table_is_prepared_inside_the_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    age, colour = draw.normal(50, 9, 120), draw.choice(["red", "blue", "green"], 120)
    age[::7] = np.nan
    y = np.where((np.nan_to_num(age, nan=50) > 50) ^ (colour == "red"), "ill", "well")
    frame = Table({"age": age, "colour": colour, "label": y, "client": np.repeat(["a", "b", "c"], 40)})
    dataset = {"data": frame, "prepare": "auto", "standardise": True}
    fedcap.Experiment(dataset=dataset, **QUICK).run(out=tmp_path / "run")
    run = fedcap.read(tmp_path / "run")
    content = content_of(run.models, "b")
    about = json.loads(session(content).get_modelmeta().custom_metadata_map["about"])
    assert (about["features"], about["classes"]) == (["age", "colour"], ["ill", "well"])
    codes = {name: code for code, name in enumerate(about["levels"]["colour"])}
    cells = [(41.0, "red"), (np.nan, "blue"), (77.0, "purple")]
    raw = np.array([[a, codes.get(c, np.nan)] for a, c in cells], np.float32)
    new = Table({"colour": np.array([c for _, c in cells]), "age": np.array([a for a, _ in cells])})
    assert run_onnx(content, raw) == pytest.approx(run.predict("b", new).numpy(), abs=2e-6)


def test_the_file_names_its_input_and_classes_and_no_path_of_this_machine() -> None:
    content = content_of(untrained("mlp", (4,), False), None, "global")
    found = session(content)
    (taken,), (given,) = found.get_inputs(), found.get_outputs()
    assert (taken.name, taken.shape, taken.type) == ("x", ["batch", 4], "tensor(float)")
    assert (given.name, given.shape) == ("probabilities", ["batch", 5])
    about = json.loads(found.get_modelmeta().custom_metadata_map["about"])
    assert about["classes"] == list("abcde")
    assert about["shape"] == [4]
    assert str(Path(fedcap.__file__).parent).encode() not in content
    assert b"stack_trace" not in content


def test_an_operation_without_an_onnx_form_is_named() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(40, 4)).astype(np.float32), np.tile([0, 1], 20)
    experiment = fedcap.Experiment(dataset={"x": x, "y": y, "clients": 2}, model=Eigen, **QUICK)
    result = experiment.run()
    pytest.importorskip("onnxscript", reason=NEEDS)
    with refused("not-exportable", "onnx") as error:
        exported(result.models, "digest", "0", "personal", ".onnx")
    assert "eigh" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with refused("needs-extra", "onnx"):
        exported(untrained("mlp", (4,), False), "digest", None, "global", ".onnx")
