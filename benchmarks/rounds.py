"""Rounds per minute: fedcap beside a plain PyTorch loop and beside Flower's simulation, on the same work."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.utils.data import TensorDataset

import fedcap
from benchmarks import flower, report
from benchmarks.plain import PlainClient, fedavg_round, fedcap_round
from benchmarks.work import WORK, Work, matmul_peak
from fedcap import models
from fedcap.simulation.loop import Simulation
from fedcap.training import Learner, Network, make_pool, single_thread
from fedcap.training.bench import _onednn
from fedcap.training.pool import available_cores

ROUNDS = 2
METHODS = ("fedavg", "fedcap")


def ours(work: Work, method: str, pool_workers: int | None = None) -> float:
    """Return our seconds a round, after one to warm up."""
    dataset = {"data": work.data, "client": work.owners, "test": work.tests}
    options = {"name": method} | ({"t_norm": 1e9} if method == "fedcap" else {})
    experiment = fedcap.Experiment(
        dataset=dataset, model=work.model, method=options, rounds=ROUNDS + 1, training={"lr": 0.01}
    )
    with make_pool(pool_workers) as pool, single_thread():
        simulation = Simulation(experiment, pool)
        simulation.play()
        began = time.perf_counter()
        for _ in range(ROUNDS):
            simulation.play()
        return (time.perf_counter() - began) / ROUNDS


def plain_clients(work: Work) -> list[PlainClient]:
    x, y = work.data
    clients = []
    for k in range(work.clients):
        mine = work.owners == k
        train, test = mine & ~work.tests, mine & work.tests
        clients.append(
            PlainClient(TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test]), work.build())
        )
    return clients


def plain(work: Work, method: str) -> float:
    """Return the plain loop's seconds a round, after one client's training to warm up."""
    clients = plain_clients(work)
    model = work.build()
    clients[0].fit(work.build(), None)
    received = [model.state_dict()] * len(clients)
    began = time.perf_counter()
    if method == "fedavg":
        fedavg_round(model, clients)
    else:
        fedcap_round(model, received, clients, alpha=10, phi=0.3)
    return time.perf_counter() - began


def share_of_peak(work: Work) -> float:
    """Return the share of one core's matrix-product peak that a lean training step reaches, in percent."""
    x, y = (part[:10] for part in work.data)
    x = x.contiguous(memory_format=torch.channels_last)
    network = Network(work.build())
    learner = Learner(network, network.weights.clone())
    with single_thread(), _onednn(models.prefers_onednn(work.model)):
        shares = []
        for _ in range(5):
            peak = matmul_peak(seconds=0.5)
            steps = [_seconds(lambda: learner.step(x, y, 0.01)) for _ in range(30)]
            shares.append(100 * work.flops() * len(y) / min(steps) / peak)
    return sorted(shares)[len(shares) // 2]


def _seconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    cores = available_cores()
    rows = []
    for work in WORK:
        peak = share_of_peak(work)
        for method in METHODS:
            mine = ours(work, method)
            slow = plain(work, method)
            rival = flower.seconds(work, method)
            rows.append(
                {
                    "network": work.name,
                    "method": method,
                    "clients": work.clients,
                    "fedcap, rounds a minute": 60 / mine,
                    "plain loop": 60 / slow,
                    "times the plain loop": slow / mine,
                    "Flower's simulation": None if rival is None else 60 / rival,
                    "times Flower": None if rival is None else rival / mine,
                    "share of a core's peak, %": peak,
                }
            )
            report.progress(rows[-1])
    report.write("rounds", f"Rounds a minute, {cores} cores", rows)
