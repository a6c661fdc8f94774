"""Models of a run: its weights in plain modules, and an error in one line if there are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import Killed, Killer
from torch import nn

import fedcap
from fedcap.runs import RunDirectory
from fedcap.simulation import Run, Simulation
from fedcap.training import Network, fresh_network

QUICK = {"rounds": 2, "training": {"lr": 0.1, "epochs": 1}, "workers": 1}


class Watcher:
    """An observer that keeps the simulation, to look into it afterwards."""

    def started(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def round_done(self, simulation: Simulation, record: object) -> None:
        pass

    def finished(self, result: object) -> None:
        pass


def play(out: Path | None, **settings: object) -> tuple[fedcap.Result, Simulation]:
    watcher = Watcher()
    result = fedcap.Experiment(**{**QUICK, **settings}).run(out=out, observers=[watcher])
    return result, watcher.simulation


def vector_of(model: nn.Module) -> torch.Tensor:
    """Return a model's weights in the order of a flat vector: `Network` puts them there."""
    return Network(model).weights


def test_a_personal_model_has_the_weights_that_the_client_kept(tmp_path: Path) -> None:
    _, simulation = play(tmp_path / "run", attack="min-max")
    run = fedcap.read(tmp_path / "run")
    for client in ("0", "7", "19"):
        model = run.model(client)
        assert torch.equal(vector_of(model), simulation.store.get(client)["personal"])


def test_a_model_is_a_plain_module_in_evaluation_mode(tmp_path: Path) -> None:
    play(tmp_path / "run")
    model = fedcap.read(tmp_path / "run").model(3)
    assert isinstance(model, nn.Sequential)
    assert not any(module.training for module in model.modules())
    assert list(model.state_dict()) == [f"{at}.{part}" for at in (0, 2, 5, 7) for part in ("weight", "bias")]
    for parameter in model.parameters():
        assert parameter.device.type == "cpu"
        assert parameter.is_contiguous()
        assert parameter.requires_grad
        assert parameter.grad is None
        assert parameter.untyped_storage().nbytes() == parameter.numel() * 4


@pytest.mark.parametrize("method", ["fedcap", "fedavg", "ditto", "fedrod", "fltrust"])
def test_shared_and_global_are_what_the_server_has(tmp_path: Path, method: str) -> None:
    extra = {"dataset": {"name": "digits", "samples": 40}} if method == "fltrust" else {}
    _, simulation = play(tmp_path / "run", method=method, **extra)
    run, server = fedcap.read(tmp_path / "run"), simulation.server
    sent = server.models_for(simulation.names)
    for row, client in ((0, "0"), (11, "11")):
        expected = sent.models[sent.index[row, 0]]
        torch.testing.assert_close(vector_of(run.model(client, "shared")), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(vector_of(run.model(reading="global")), server.inspect().global_model)
    assert torch.equal(vector_of(run.model("4", "global")), vector_of(run.model(reading="global")))


@pytest.mark.parametrize("method", fedcap.methods.names())
def test_a_personal_model_answers_as_the_method_does(tmp_path: Path, method: str) -> None:
    extra = {"dataset": {"name": "digits", "samples": 40}} if method == "fltrust" else {}
    result, simulation = play(tmp_path / "run", method=method, **extra)
    x = simulation.data.test[5].x
    network = fresh_network(simulation.build, 0)
    module = simulation.method.predictor(network, simulation.store.get("5")).eval()
    with torch.no_grad():
        expected = network.answer(x, module)
    for holder in (fedcap.read(tmp_path / "run"), result):
        found = holder.model("5")(x).detach()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_fedrods_two_heads_are_one_module_that_can_be_saved_and_loaded(tmp_path: Path) -> None:
    play(tmp_path / "run", method="fedrod")
    run = fedcap.read(tmp_path / "run")
    one, other = run.model("2"), run.model("3")
    assert {name.partition(".")[0] for name in one.state_dict()} == {"network", "personal"}
    x = torch.randn(4, 1, 8, 8)
    assert not torch.equal(one(x), other(x))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
    assert torch.equal(one(x), one.network(x) + one.personal(one.network[:-1](x)))


@pytest.mark.parametrize("method", ["fedcap", "fedrod"])
def test_a_result_has_models_with_and_without_a_directory(tmp_path: Path, method: str) -> None:
    kept, _ = play(tmp_path / "run", method=method)
    unkept, _ = play(None, method=method)
    again = fedcap.Experiment(**QUICK, method=method).run(out=tmp_path / "run")
    x = torch.randn(3, 1, 8, 8)
    for client, reading in (("3", "personal"), ("3", "shared"), (0, "global")):
        answers = [result.model(client, reading)(x) for result in (kept, unkept, again)]
        answers.append(fedcap.read(tmp_path / "run").result.model(client, reading)(x))
        assert all(torch.equal(answer, answers[0]) for answer in answers)


def test_models_outlive_the_working_directory_and_changes_to_one_reach_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result, _ = play(Path("run"))
    unkept, _ = play(None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for holder in (result, unkept):
        with torch.no_grad():
            spoiled = holder.model("1")
            for parameter in spoiled.parameters():
                parameter.zero_()
        assert vector_of(holder.model("1")).abs().sum() > 0


def move_to_a_gpu(path: Path) -> None:
    """Make a run's directory that of one that used a GPU."""
    directory = RunDirectory(path)
    settings, facts = directory.settings(), directory.provenance()
    assert settings is not None
    assert facts is not None
    gpu = settings.model_copy(update={"device": "cuda:7"})
    config = path / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda:7"'))
    directory.write_provenance(replace(facts, settings_digest=gpu.digest()))


def test_the_data_and_the_device_of_the_run_are_not_needed(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    owners = np.repeat(["anna", "ben", "cleo"], 20)
    x, y = generator.normal(size=(60, 6)).astype(np.float32), np.tile(["no", "yes"], 30)
    np.savez(tmp_path / "mine.npz", x=x, y=y, client=owners)
    play(tmp_path / "run", dataset=str(tmp_path / "mine.npz"), method="fedavg")
    (tmp_path / "mine.npz").unlink()
    move_to_a_gpu(tmp_path / "run")
    run = fedcap.read(tmp_path / "run")
    assert run.provenance.class_names == ["no", "yes"]
    assert run.provenance.shape == [6]
    assert run.provenance.pixels is False
    assert run.model("cleo")(torch.zeros(2, 6)).shape == (2, 2)


def test_an_unfinished_run_has_the_models_of_its_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        fedcap.Experiment(**QUICK | {"rounds": 4, "checkpoint_every": 2}).run(out=out, observers=[Killer(3)])
    whole, _ = play(None, checkpoint_every=2)
    run = fedcap.read(out)
    assert run.result is None
    assert torch.equal(vector_of(run.model("3")), vector_of(whole.model("3")))
    assert torch.equal(vector_of(run.model("3", "shared")), vector_of(whole.model("3", "shared")))


def test_a_users_model_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "my_net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Conv2d(1, 4, 3)\n        self.norm = nn.BatchNorm2d(4)\n"
        "        self.head = nn.Linear(144, 10)\n\n"
        "    def forward(self, x):\n        return self.head(self.norm(self.body(x)).relu().flatten(1))\n"
    )
    code = (
        "import fedcap, torch, sys\n"
        "result = fedcap.Experiment(model='my_net:Net', rounds=2, workers=1).run(out='run')\n"
        "model = fedcap.read('run').model('4')\n"
        "import my_net\n"
        "assert isinstance(model, my_net.Net)\n"
        "assert list(model.state_dict()) == list(my_net.Net().state_dict())\n"
        "assert all(part.is_contiguous() for part in model.state_dict().values())\n"
        "assert model.norm.running_mean.abs().sum() > 0\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of FedCAP: 1 and 5 are removed in round 1; four more never trained, and are in no pool."""
    out = tmp_path_factory.mktemp("runs") / "attacked"
    play(out, attack={"name": "ipm", "clients": [1, 5]}, participation=0.5, rounds=1)
    return fedcap.read(out)


def lacking(run: Run, client: object, reading: str) -> str:
    with pytest.raises(fedcap.InputError) as error:
        run.model(client, reading)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_client_that_never_trained_has_no_model_of_its_own(attacked: Run) -> None:
    absent = next(k for k in attacked.provenance.clients if k not in attacked.rounds[0].participants)
    said = lacking(attacked, absent, "personal")
    assert said.startswith(f"no personal model of client {absent!r}: it has not trained here: ")
    assert said.endswith("; there is global")
    said = lacking(attacked, absent, "shared")
    assert "the server would first ask it for an update; there is global" in said


def test_a_removed_client_is_sent_nothing_but_may_have_its_own(tmp_path: Path) -> None:
    play(
        tmp_path / "run",
        attack={"name": "sign-flipping", "clients": [1]},
        method={"name": "fedcap", "t_norm": 1e-3},
    )
    run = fedcap.read(tmp_path / "run")
    assert "1" in run.removed
    assert lacking(run, "1", "shared") == (
        "no shared model of client '1': it was removed, and receives none; there is personal and global"
    )
    assert run.model("1").training is False


def test_the_error_names_the_models_that_a_method_has(tmp_path: Path) -> None:
    play(tmp_path / "local", method="local")
    play(tmp_path / "fedfomo", method="fedfomo")
    local, fedfomo = fedcap.read(tmp_path / "local"), fedcap.read(tmp_path / "fedfomo")
    assert lacking(local, "3", "shared") == (
        "no shared model of client '3': Local shares nothing; there is personal"
    )
    assert "Local has no one model for all; there is personal" in lacking(local, "3", "global")
    assert "FedFomo has no one model for all; there is personal" in lacking(fedfomo, "3", "global")
    assert "a client mixes it itself" in lacking(fedfomo, "3", "shared")
    assert "name a client" in lacking(local, None, "personal")


def test_a_run_of_an_earlier_version_is_reported_as_such(tmp_path: Path) -> None:
    play(tmp_path / "run", method="fedavg", rounds=1)
    path = tmp_path / "run" / "provenance.json"
    facts = json.loads(path.read_text())
    path.write_text(
        json.dumps({key: facts[key] for key in facts if key not in ("shape", "class_names", "pixels")})
    )
    run = fedcap.read(tmp_path / "run")
    assert "did not record the inputs of its networks" in lacking(run, "3", "personal")
    again = fedcap.Experiment(**QUICK | {"rounds": 1}, method="fedavg").run(out=tmp_path / "run")
    assert again.tacc == run.result.tacc


def test_a_checkpoint_that_is_missing_broken_or_of_another_network_is_one_line(tmp_path: Path) -> None:
    play(tmp_path / "run", method="fedavg", rounds=1)
    play(tmp_path / "other", method="fedavg", rounds=1, model="mlp")
    run, file = fedcap.read(tmp_path / "run"), tmp_path / "run" / "checkpoint.safetensors"
    file.write_bytes((tmp_path / "other" / "checkpoint.safetensors").read_bytes())
    assert "is of another run" in lacking(run, "3", "personal")
    file.write_bytes(file.read_bytes()[:100])
    assert "checkpoint.safetensors is not a checkpoint" in lacking(fedcap.read(run.path), "3", "personal")
    file.unlink()
    said = lacking(fedcap.read(run.path), "3", "global")
    assert "is missing, and the models with it; repeat the run" in said
