"""`fedcap federate rehearse`: a federation with real processes over TLS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import call

pytest.importorskip("flwr")

import fedcap
from fedcap import data
from fedcap.data import FederatedData
from fedcap.federation.audit import verify
from fedcap.federation.config import Operator, SiteDirectory
from fedcap.federation.flower.nginx import find_nginx
from fedcap.federation.keys import make_key
from fedcap.federation.rehearsal import TIMES
from fedcap.federation.site import StateFolder
from fedcap.runs import CHECKPOINT
from fedcap.runs.checkpoint import unpack
from fedcap.simulation import Simulation
from fedcap.training import make_pool, single_thread


def test_a_folder_with_files_is_not_changed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    code, _, _ = call(capsys, "federate", "rehearse", "--out", tmp_path)
    assert (code, [path.name for path in tmp_path.iterdir()]) == (2, ["mine"])


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and str(os.getpid()) != path.parent.name:
            found.append(line)
    return found


def assert_the_simulations_bits(folder: Path, names: list[str], malicious: str) -> None:
    """Play the same rounds in a simulation, and compare scores, the server's state and what sites keep."""
    operator = Operator(folder / "operator")
    plan, run = operator.plan, fedcap.read(operator.run)
    sites = {make_key(folder / "sites" / name): SiteDirectory.open(folder / "sites" / name) for name in names}
    clients = tuple(operator.ledger.entries())
    first = sites[clients[0]].config

    def partitioned(experiment: fedcap.Experiment) -> FederatedData:
        whole = data.federate_source(experiment.source, experiment.source.load(), first.seed)
        rows = [whole.names.index(str(sites[client].config.client)) for client in clients]
        sizes = whole.sizes[0][rows], whole.sizes[1][rows]
        return replace(whole, names=clients, clients=[whole.clients[k] for k in rows], sizes=sizes)

    with pytest.MonkeyPatch.context() as patch, make_pool(1) as pool, single_thread():
        patch.setattr(fedcap.Experiment, "load_data", partitioned)
        settings: dict[str, Any] = {"dataset": dict(first.dataset), "method": dict(plan.method)}
        attack = {"name": "sign-flipping", "scale": float(TIMES), "clients": [malicious]}
        experiment = fedcap.Experiment(
            **settings,
            attack=attack,
            model=plan.model,
            training=plan.training,
            seed=plan.seed,
            rounds=plan.rounds,
            assumed=plan.assumed,
            workers=1,
        )
        simulation = Simulation(experiment, pool)
        for record in run.rounds:
            assert not record.refused
            simulation.server.select = lambda *_, took_part=record.participants: took_part  # type: ignore[method-assign]
            expected = simulation.play()
            assert (record.participants, record.asked) == (expected.participants, expected.asked)
            assert record.scores == expected.scores
            assert record.removed == expected.removed
    _, saved = unpack(operator.run / CHECKPOINT)
    for name, tensor in simulation.server.state_dict().items():
        assert torch.equal(saved[f"server.{name}"], tensor), name
    for client in set(clients) - {malicious}:
        state = StateFolder(sites[client].state, plan).last()
        assert state is not None
        for name, tensor in simulation.store.get(client).items():
            assert torch.equal(state.kept[name], tensor), (client, name)


@pytest.mark.federation
def test_a_rehearsal_removes_the_malicious_site_and_leaves_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rehearsal"
    options = ["--clients", "4", "--rounds", "3", "--out", str(folder), "--json"]
    command = [sys.executable, "-m", "fedcap", "federate", "rehearse", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ok"], found["finished"], found["malicious"]) == (True, True, ["site-4"])
    assert [row["state"] for row in found["clients"]] == ["active", "active", "active", "removed"]
    malicious = found["clients"][-1]
    assert (malicious["round"], malicious["score"] > 6) == (1, True)
    assert "over 6" in malicious["reason"]
    assert sum(row["weight"] for row in found["clients"][:3]) == pytest.approx(100, abs=0.1)
    assert all(row["accuracy"] > 30 for row in found["clients"][:3])
    assert ("through nginx" if find_nginx() else "nginx is not installed") in done.stderr

    operator = Operator(folder / "operator")
    assert verify(operator.audit.path) == []
    run = fedcap.read(operator.run)
    assert (len(run.rounds), list(run.removed)) == (3, [malicious["fingerprint"]])
    for name in ("site-1", "site-4"):
        assert verify(folder / "sites" / name / "audit.jsonl") == []
    assert_the_simulations_bits(
        folder, [f"site-{number}" for number in range(1, 5)], malicious["fingerprint"]
    )
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 1, 8, 8), np.float32))
    code, out, _ = call(capsys, "predict", folder / "sites" / "site-1", tmp_path / "new.npz", "--json")
    assert (code, len(json.loads(out)["answers"])) == (0, 2)
    until = time.monotonic() + 15
    while processes_in(folder) and time.monotonic() < until:  # Flower's own notice within seconds
        time.sleep(0.5)
    assert processes_in(folder) == []
