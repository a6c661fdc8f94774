"""Integer inputs stay integers with `dataset.integers`, for networks that begin with nn.Embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import call, refused
from torch import nn

import fedcap
from fedcap.data.tables import Table
from fedcap.errors import UserCodeError

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
TOKENS = DRAW.integers(0, 50, size=(120, 6))
Y = np.array(["low", "high"])[(TOKENS.sum(axis=1) > 147).astype(int)]
OWNER = np.array(["Bern", "Oslo", "Rome"]).repeat(40)
NAMES = [f"t{at}" for at in range(6)]
QUICK: dict[str, Any] = {"rounds": 1, "workers": 1, "training": {"epochs": 1, "lr": 0.1}}


def network() -> nn.Module:
    return nn.Sequential(nn.Embedding(50, 3), nn.Flatten(), nn.Linear(18, 2))


def arrays(folder: Path) -> Any:
    return {"x": TOKENS, "y": Y, "client": OWNER}


def npz(folder: Path) -> Any:
    np.savez(folder / "data.npz", x=TOKENS.astype(np.uint16), y=Y, client=OWNER)
    return {"name": str(folder / "data.npz")}


def table(folder: Path) -> Any:
    columns = dict(zip(NAMES, TOKENS.T, strict=True))
    return {"data": Table(columns | {"y": Y, "client": OWNER})}


def csv(folder: Path) -> Any:
    rows = [
        ",".join(map(str, [*row, label, owner])) for row, label, owner in zip(TOKENS, Y, OWNER, strict=True)
    ]
    (folder / "data.csv").write_text("\n".join([",".join([*NAMES, "y", "client"]), *rows]))
    return {"name": str(folder / "data.csv")}


@pytest.mark.parametrize("source", [arrays, npz, table, csv])
def test_whole_numbers_reach_the_network_as_integers(tmp_path: Path, source: Any) -> None:
    dataset = source(tmp_path)
    federated = fedcap.Experiment(dataset=dataset | {"integers": True}, model=network, **QUICK).load_data()
    found = torch.cat([part.x for client in federated.clients for part in client])
    assert found.dtype == torch.int64
    assert sorted(found.tolist()) == sorted(TOKENS.tolist())
    plain = fedcap.Experiment(dataset=dataset, **QUICK).load_data()
    assert plain.train[0].x.dtype == torch.float32
    assert (
        fedcap.Experiment(dataset=dataset | {"integers": False}).digest()
        == fedcap.Experiment(dataset=dataset).digest()
    )


def test_runs_predictions_and_programs_take_integers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = fedcap.Experiment(dataset=csv(tmp_path) | {"integers": True}, model=network, **QUICK)
    with fedcap.simulation.make_pool(2) as pool:
        result = experiment.run(out=tmp_path / "run", pool=pool)
    assert result.metrics is not None
    run = fedcap.read(tmp_path / "run")
    assert run.provenance.integers
    expected = run.model("Oslo")(torch.from_numpy(TOKENS)).softmax(dim=1)
    assert torch.allclose(run.predict("Oslo", TOKENS), expected, atol=1e-6)
    swapped = Table(dict(zip(NAMES[::-1], TOKENS.T[::-1].astype(float), strict=True)))
    assert torch.allclose(run.predict("Oslo", swapped), expected, atol=1e-6)
    with refused("data-shape", "x"):
        run.predict("Oslo", TOKENS + 0.5)
    arguments = ["export", tmp_path / "run", "--client", "Oslo", "-o", tmp_path / "m.pt2", "--json"]
    code, out, _ = call(capsys, *arguments)
    assert (code, json.loads(out)["dtype"]) == (0, "int64")
    program = torch.export.load(tmp_path / "m.pt2").module()
    assert torch.allclose(program(torch.from_numpy(TOKENS)), expected, atol=1e-6)
    code, out, _ = call(
        capsys, "predict", tmp_path / "run", tmp_path / "data.csv", "--client", "Oslo", "--json"
    )
    assert [row["p(low)"] for row in json.loads(out)["answers"]] == pytest.approx(
        expected[:, 1].tolist(), abs=1e-6
    )


@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf, 1e17])
def test_inputs_that_are_not_whole_numbers_are_refused(wrong: float) -> None:
    x = TOKENS.astype(float)
    x[3, 2] = wrong
    with refused("data-shape", "x") as error:
        fedcap.Experiment(dataset={"x": x, "y": Y, "integers": True}).load_data()
    assert f"dataset.integers needs whole numbers as inputs (got {wrong:g})" in str(error.value)


def test_options_that_change_the_inputs_are_refused(tmp_path: Path) -> None:
    for other in ({"standardise": True}, {"prepare": "auto"}):
        with refused("bad-value", "integers"):
            fedcap.Experiment(dataset=table(tmp_path) | {"integers": True} | other)
    for class_ in ("a", "b"):
        (tmp_path / "photos" / class_).mkdir(parents=True)
    with refused("bad-value", "integers"):
        fedcap.Experiment(dataset={"name": str(tmp_path / "photos"), "integers": True})


def test_networks_and_inputs_that_do_not_fit_are_one_line() -> None:
    data = {"x": TOKENS, "y": Y}
    with refused("unsuitable-model", "mlp"):
        fedcap.Experiment(dataset=data | {"integers": True}, **QUICK).run()
    with pytest.raises(UserCodeError) as error:
        fedcap.Experiment(dataset=data, model=network, **QUICK).run()
    assert "dataset.integers=true keeps integers" in str(error.value)
