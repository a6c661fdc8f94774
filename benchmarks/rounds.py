"""Rounds per minute of fedcap, a plain PyTorch loop and Flower's simulation, on the same work.

The best of five rounds counts, after a first round that does not; fedcap and the plain loop play in turn.
fedcap and Flower run one worker process with one thread on each core; the plain loop has all threads, torch's
default. The others are measured as users run them, and again with fedcap's library for matrix products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fedcap
from benchmarks import flower, report
from benchmarks.plain import fedavg_round, fedcap_round, plain_clients, plain_network
from benchmarks.work import ALL_THREADS, WORK, Work, matmul_peak, product_seconds, threads
from fedcap.products import chosen_products, fast_products
from fedcap.simulation import Simulation
from fedcap.training import Learner, Network, available_cores, make_pool

TURNS = 5
METHODS = ("fedavg", "fedcap", "fedcap under IPM")
"""Under IPM a quarter of the clients attack: they do not train, and are removed in the first round.
The plain loop and Flower have no defence: they train all clients, as without an attack."""

Round = Callable[[], object]


@contextmanager
def ours(work: Work, method: str) -> Iterator[Round]:
    """Yield a function that plays a round of fedcap; the first has been played."""
    name, _, attacked = method.partition(" under ")
    experiment = fedcap.Experiment(
        **work.settings(),
        method=name,
        attack={"name": attacked, "epsilon": 1000} if attacked else "none",
        malicious=0.25,
        rounds=1000,
    )
    with make_pool() as pool:
        with threads(1):
            simulation = Simulation(experiment, pool)
            simulation.play()
        assert len(simulation.server.removed) == (work.clients // 4 if attacked else 0)
        yield simulation.play


def plain(work: Work, method: str) -> Round:
    """Return a function that plays a round of the plain loop, which trains and tests all clients."""
    clients = plain_clients(work)
    model = plain_network(work)
    clients[0].fit(plain_network(work), None)
    if method == "fedavg":
        return lambda: fedavg_round(model, clients)
    received = [model.state_dict()] * len(clients)
    return lambda: fedcap_round(model, received, clients, alpha=10, phi=0.3)


def with_our_products(play: Round) -> Round:
    """Return the round with fedcap's library for matrix products."""

    def played() -> object:
        with fast_products():
            return play()

    return played


def in_turns(*rounds: tuple[Round, int]) -> list[float]:
    """Return the seconds of the best round of each, given functions and their numbers of threads.

    They play in turn, so that all are measured under the same load.
    """
    taken = [[_seconds(*each) for each in rounds] for _ in range(TURNS)]
    return [min(times) for times in zip(*taken, strict=True)]


def shares_of_peak(work: Work) -> tuple[float, float]:
    """Return how close a training step comes to two limits of one core, in percent.

    The first limit is the speed of a large square matrix product. The second is the time of the products that
    this network needs, each by the faster library.
    """
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
        own = sum(product_seconds(*product, seconds=0.2) for product in work.products(len(y)))
    return sorted(shares)[len(shares) // 2], 100 * own / min(steps)


def _seconds(play: Round, count: int) -> float:
    with threads(count):
        began = time.perf_counter()
        play()
        return time.perf_counter() - began


def main() -> None:
    cores = available_cores()
    rows = []
    for work in WORK:
        peak, own = shares_of_peak(work)
        for method in METHODS:
            with ours(work, method) as round_of_ours:
                loop = plain(work, method)
                mine, slow, same = in_turns(
                    (round_of_ours, 1), (loop, ALL_THREADS), (with_our_products(loop), ALL_THREADS)
                )
            if "under" not in method:
                rival, equal = (flower.seconds(work, method, TURNS, equal) for equal in (False, True))
            rows.append(
                {
                    "network": work.name,
                    "method": method,
                    "clients": work.clients,
                    "fedcap, rounds per minute": 60 / mine,
                    "plain loop": 60 / slow,
                    "times the plain loop": slow / mine,
                    "Flower's simulation": None if rival is None else 60 / rival,
                    "times Flower": None if rival is None else rival / mine,
                    "times the plain loop with fedcap's products": same / mine,
                    "times Flower with fedcap's products": None if equal is None else equal / mine,
                    "share of a core's peak, %": peak,
                    "share of its products' speed, %": own,
                }
            )
            report.progress(rows[-1])
    used = (
        f"fedcap and Flower one in each of {cores} worker processes, the plain loop {ALL_THREADS};"
        f" matrix products of fedcap by {chosen_products()}"
    )
    report.write("rounds", "Rounds per minute", rows, used)
