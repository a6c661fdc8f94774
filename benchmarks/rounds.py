"""Rounds a minute: fedcap beside a plain PyTorch loop and beside Flower's simulation, on the same work.

Everybody's best round of five counts, after one to warm up; ours and the plain loop's take turns. Ours and
Flower's run one worker process with one thread on each core; the plain loop has all threads, as torch
takes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fedcap
from benchmarks import flower, report
from benchmarks.plain import fedavg_round, fedcap_round, plain_clients, plain_network
from benchmarks.work import ALL_THREADS, WORK, Work, matmul_peak, threads
from fedcap.simulation import Simulation
from fedcap.training import Learner, Network, available_cores, make_crew

TURNS = 5
METHODS = ("fedavg", "fedcap", "fedcap under IPM")
"""Under IPM a quarter of the clients attack: they do not train, and are removed in the first round.
The plain loop and Flower have no defence: they train all clients, as without an attack."""

Round = Callable[[], object]


@contextmanager
def ours(work: Work, method: str) -> Iterator[Round]:
    """Give a function that plays a round of ours; the first has been played."""
    name, _, attacked = method.partition(" under ")
    experiment = fedcap.Experiment(
        **work.settings(),
        method=name,
        attack={"name": attacked, "epsilon": 1000} if attacked else "none",
        malicious=0.25,
        rounds=1000,
    )
    with make_crew() as crew:
        with threads(1):
            simulation = Simulation(experiment, crew)
            simulation.play()
        assert len(simulation.server.removed) == (work.clients // 4 if attacked else 0)
        yield simulation.play


def plain(work: Work, method: str) -> Round:
    """Return a function that plays a round of the plain loop, which trains and tests everybody."""
    clients = plain_clients(work)
    model = plain_network(work)
    clients[0].fit(plain_network(work), None)
    if method == "fedavg":
        return lambda: fedavg_round(model, clients)
    received = [model.state_dict()] * len(clients)
    return lambda: fedcap_round(model, received, clients, alpha=10, phi=0.3)


def in_turns(*rounds: tuple[Round, int]) -> list[float]:
    """Return the seconds of each one's best round, given the rounds and with how many threads to play them.

    They take turns, so that all see the same machine.
    """
    taken = [[_seconds(*each) for each in rounds] for _ in range(TURNS)]
    return [min(times) for times in zip(*taken, strict=True)]


def share_of_peak(work: Work) -> float:
    """Return the share of one core's matrix-product peak that a lean training step reaches, in percent."""
    x, y = (part[:10] for part in work.data)
    network = Network(work.build())
    learner = Learner(network, network.weights.clone())
    shares = []
    with threads(1):
        for _ in range(5):
            peak = matmul_peak(seconds=0.5)
            steps = []
            for _ in range(30):
                began = time.perf_counter()
                learner.step(x, y, 0.01)
                steps.append(time.perf_counter() - began)
            shares.append(100 * work.flops() * len(y) / min(steps) / peak)
    return sorted(shares)[len(shares) // 2]


def _seconds(play: Round, count: int) -> float:
    with threads(count):
        began = time.perf_counter()
        play()
        return time.perf_counter() - began


def main() -> None:
    cores = available_cores()
    rows = []
    for work in WORK:
        peak = share_of_peak(work)
        for method in METHODS:
            with ours(work, method) as round_of_ours:
                mine, slow = in_turns((round_of_ours, 1), (plain(work, method), ALL_THREADS))
            if "under" not in method:
                rival = flower.seconds(work, method, TURNS)
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
    used = f"fedcap and Flower one in each of {cores} worker processes, the plain loop {ALL_THREADS}"
    report.write("rounds", "Rounds a minute", rows, used)
