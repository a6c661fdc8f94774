"""From a run to its models on the command line: show, export, predict."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import Killed, Killer, call
from safetensors import safe_open
from safetensors.torch import load_file

import fedcap

QUICK = {"rounds": 2, "training": {"lr": 0.1}, "workers": 1}

WITHOUT_FEDCAP = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "fedcap":
            raise AssertionError(f"{name} was imported")

sys.meta_path.insert(0, Forbidden())
import json
import numpy as np
import torch

extra = {"about.json": ""}
program = torch.export.load(sys.argv[1], extra_files=extra).module()
x = np.load(sys.argv[2])["x"]
shape = json.loads(extra["about.json"])["shape"]
raw = torch.from_numpy(x.reshape(len(x), *shape))
for name, part in (("all", raw), ("one", raw[:1])):
    with torch.no_grad():
        np.save(f"{sys.argv[3]}-{name}.npy", program(part).numpy())
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, one unfinished, one on images of named clients, and inputs of each."""
    folder = tmp_path_factory.mktemp("here")
    settings = {**QUICK, "attack": {"name": "ipm", "clients": [1, 5]}}
    experiment = fedcap.Experiment(**settings)
    experiment.run(out=folder / "ipm")
    fedcap.Experiment(**QUICK, method="fedrod").run(out=folder / "fedrod")
    with pytest.raises(Killed):
        fedcap.Experiment(**settings | {"rounds": 5}).run(out=folder / "killed", observers=[Killer(2)])
    test = experiment.load_data().test[3]
    np.savez(folder / "digits.npz", x=test.x[:, 0].numpy(), y=test.y.numpy())
    generator = np.random.default_rng(0)
    y = np.tile(["cat", "dog"], 60)
    x = np.clip(generator.normal(90, 30, (120, 6, 6)) + 60 * (y == "dog")[:, None, None], 0, 255)
    x = x.astype(np.uint8)
    np.savez(folder / "mine.npz", x=x, y=y, client=np.repeat(["u01", "u02", "u03"], 40))
    mine = {"name": str(folder / "mine.npz"), "standardise": True}
    fedcap.Experiment(**QUICK, dataset=mine, method="fedavg").run(out=folder / "mine")
    np.savez(folder / "new.npz", x=x[::7], y=y[::7])
    return folder


@pytest.fixture(autouse=True)
def _there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)


def test_show_prints_the_summary_of_a_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    code, again, _ = call(capsys, "run", "--resume", "ipm")
    assert code == 0
    code, out, err = call(capsys, "show", "ipm")
    assert (code, err) == (0, "")
    assert out.startswith(again)
    clients = fedcap.read("ipm").clients
    rows = [line.strip("│").split("│") for line in out.splitlines() if line.count("│") == 6]
    for client, cells in zip(clients, rows, strict=True):
        name, kind, shared, personal, removed = map(str.strip, cells)
        assert (name, kind) == (client.id, "malicious" if client.malicious else "honest")
        assert shared == ("–" if client.shared is None else f"{client.shared:.1f}")
        assert personal == ("–" if client.personal is None else f"{client.personal:.1f}")
        assert removed == (
            f"in round {client.removed.round}: {client.removed.reason}" if client.removed else ""
        )


def test_show_prints_how_far_an_unfinished_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "show", "killed")
    assert code == 0
    assert "2 of 5 rounds, unfinished" in out
    assert "accuracy" in out
    assert "fedcap run --resume killed" in out


def test_show_prints_several_runs_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "show", "ipm", "fedrod", "killed")
    assert code == 0
    rows = [line.replace("│", " ").split() for line in out.splitlines() if " digits " in line]
    runs = [fedcap.read(name) for name in ("ipm", "fedrod", "killed")]
    best = [f"{run.evaluated.accuracy.best:.1f}" for run in runs]
    assert [row[:4] for row in rows] == [
        ["1", "digits", "fedcap", "ipm"],
        ["2", "digits", "fedrod", "none"],
        ["3", "digits", "fedcap", "ipm"],
    ]
    assert [row[6 if row[0] != "3" else 8] for row in rows] == best
    assert rows[0][-4:] == ["2", "of", "2", "0"]
    assert rows[1][-2:] == ["–", "–"]
    assert rows[2][5:8] == ["2", "of", "5"]
    assert [line.split() for line in out.splitlines()[-3:]] == [
        ["1", "ipm"],
        ["2", "fedrod"],
        ["3", "killed"],
    ]


def test_show_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "show", "ipm", "killed", "--json")
    assert code == 0
    done, killed = json.loads(out)
    assert done["result"] == json.loads(Path("ipm/result.json").read_text())
    assert (done["directory"], done["finished"], done["method"]) == ("ipm", True, "fedcap")
    assert done["settings"]["method"]["name"] == "fedcap"
    assert (killed["finished"], killed["result"], killed["rounds"]) == (False, None, "2 of 5")
    assert killed["accuracy"] == fedcap.read("killed").evaluated.accuracy.best


def test_predict_gives_the_names_of_classes_and_their_probability(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "predict", "ipm", "digits.npz", "--client", "3", "--json")
    assert code == 0
    found = json.loads(out)
    run, arrays = fedcap.read("ipm"), np.load("digits.npz")
    logits = run.model("3")(torch.from_numpy(arrays["x"])[:, None]).detach().double()
    oracle = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    assert [row["answer"] for row in found["answers"]] == [str(k) for k in oracle.argmax(dim=1).tolist()]
    sure = [row["confidence"] for row in found["answers"]]
    assert sure == pytest.approx(oracle.amax(dim=1).tolist(), abs=1e-6)
    assert [row["label"] for row in found["answers"]] == arrays["y"].astype(str).tolist()
    (client,) = [one for one in run.clients if one.id == "3"]
    assert found["accuracy"] == pytest.approx(client.personal)


def test_predict_prints_the_first_rows_and_saves_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "predict", "mine", "new.npz", "--client", "u02")
    assert code == 0
    assert "18 answers by the personal model of client u02" in out
    assert "8 more: -o answers.csv saves all" in out
    assert sum("cat" in line or "dog" in line for line in out.splitlines()) == 10
    for name in ("answers.csv", "answers.json", "answers.npz"):
        code, out, _ = call(capsys, "predict", "mine", "new.npz", "--client", "u02", "-o", name)
        assert (code, name in out) == (0, True)
    with open("answers.csv") as file:
        rows = list(csv.DictReader(file))
    saved = np.load("answers.npz")
    told = json.loads(Path("answers.json").read_text())["answers"]
    assert [row["answer"] for row in rows] == saved["answer"].tolist() == [row["answer"] for row in told]
    assert [float(row["confidence"]) for row in rows] == saved["confidence"].astype(float).tolist()
    assert [row["label"] for row in rows] == np.load("new.npz")["y"].tolist()
    assert saved["classes"].tolist() == ["cat", "dog"]
    assert saved["probabilities"].sum(axis=1) == pytest.approx(np.ones(18), abs=1e-6)
    assert fedcap.read("mine").provenance.class_names == ["cat", "dog"]


def test_predict_takes_a_plain_array_too(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("plain.npy", np.load("digits.npz")["x"])
    code, out, _ = call(capsys, "predict", "fedrod", "plain.npy", "--client", "3", "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] is None
    code, out, _ = call(capsys, "predict", "fedrod", "plain.npy", "--reading", "global", "--json")
    assert (code, json.loads(out)["client"]) == (0, None)


@pytest.mark.parametrize(
    ("run", "client", "inputs", "reading"),
    [
        ("fedrod", "4", "digits.npz", "personal"),
        ("mine", "u03", "new.npz", "personal"),
    ],
)
def test_a_program_answers_the_same_bits_as_predict_without_fedcap(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, run: str, client: str, inputs: str, reading: str
) -> None:
    choice = ["--client", client, "--reading", reading]
    code, out, err = call(capsys, "export", run, *choice, "-o", tmp_path / "model.pt2")
    assert (code, err) == (0, "")
    assert f"the {reading} model of client {client}" in out
    call(capsys, "predict", run, inputs, *choice, "-o", tmp_path / "all.npz")
    arguments = [tmp_path / "model.pt2", inputs, tmp_path / "program"]
    subprocess.run([sys.executable, "-c", WITHOUT_FEDCAP, *map(str, arguments)], check=True)
    expected, found = np.load(tmp_path / "all.npz")["probabilities"], np.load(tmp_path / "program-all.npy")
    assert expected.tobytes() == found.tobytes()
    assert np.load(tmp_path / "program-one.npy") == pytest.approx(expected[:1], abs=1e-6)


def test_a_program_describes_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(capsys, "export", "mine", "--client", "u01", "-o", tmp_path / "m.pt2", "--json")
    assert code == 0
    extra: dict[str, Any] = {"about.json": ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    about = json.loads(extra["about.json"])
    assert json.loads(out) == {"file": str(tmp_path / "m.pt2"), **about}
    digest = json.loads(Path("mine/provenance.json").read_text())["digest"]
    wanted = {"client": "u01", "reading": "personal", "classes": ["cat", "dog"], "run": digest}
    assert about == {**wanted, "shape": [1, 6, 6], "dtype": "uint8"}


def test_exported_weights_fit_the_networks_own_module(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    code, _, _ = call(capsys, "export", "ipm", "--client", "3", "-o", file)
    assert code == 0
    module = fedcap.models.registry.make("cnn-digits").build((1, 8, 8), 10)
    module.load_state_dict(load_file(file))
    x = torch.randn(4, 1, 8, 8)
    assert torch.equal(module(x), fedcap.read("ipm").model("3")(x))
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["about"])
    assert (about["client"], about["reading"], about["shape"]) == ("3", "personal", [1, 8, 8])


def test_a_network_that_cannot_be_traced_can_export_its_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "untraceable.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Flatten(), nn.Linear(64, 10))\n\n"
        "    def forward(self, x):\n"
        "        return super().forward(x if float(x.sum()) > 0 else -x)\n"
    )
    run = (
        "run --model untraceable:Net --method fedavg --rounds 1 --workers 1 --out run --set training.epochs=1"
    )
    assert call(capsys, *run.split())[0] == 0
    code, _, err = call(capsys, "export", "run", "--client", "3", "-o", "model.pt2")
    assert code == 2
    assert "cannot be made a program" in err
    assert err.endswith("(-o FILE.safetensors)\n")
    assert len(err.splitlines()) == 1
    assert not Path("model.pt2").exists()
    assert call(capsys, "export", "run", "--client", "3", "-o", "model.safetensors")[0] == 0
