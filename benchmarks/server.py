"""FedCAP's server step (customise, recover, calibrate, detect) for several N and D, as a share of the peak.

Step and peak, the speed of a large matrix product, are measured with all threads. The step needs two matrix
products: all similarities, and mixing. They count as 4 N² D operations; only half of the similarities, which
are symmetric, are computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from benchmarks import report
from benchmarks.work import ALL_THREADS, matmul_peak, peak_memory, threads
from fedcap.detection import Batch
from fedcap.methods import make
from fedcap.methods.fedcap import FedCAPState

Step = Callable[[], tuple[float, float]]
Rows = tuple[torch.Tensor, torch.Tensor]

SIZES = (
    (20, 156_810),
    (100, 156_810),
    (300, 156_810),
    (1000, 156_810),
    (100, 1_000_000),
    (1000, 1_000_000),
)


def step(clients: int, weights: int, preset: str = "paper", rows: Rows | None = None) -> Step:
    """Return a function that does the server's step once and returns the seconds of its two halves.

    `rows` are the models in the pool and the updates that are received; drawn if not given.
    """
    models, updates = rows or (torch.randn(clients, weights), torch.randn(clients, weights))
    method = make("fedcap", t_norm=1e9, preset=preset)
    memory = method.defence.start()
    ids = torch.arange(clients)
    counts = torch.ones(clients, dtype=torch.float64)
    state = FedCAPState(
        model=torch.zeros(weights),
        ids=ids,
        models=models,
        updates=models[:0],
        samples=counts,
        compared=torch.tensor([0, weights]),
        norms=counts,
        votes=counts,
        gains=torch.eye(clients),
        likeness=torch.eye(clients) if preset == "hardened" else torch.empty(0, 0),
    )
    batch = Batch(ids, updates, counts)

    def play() -> tuple[float, float]:
        began = time.perf_counter()
        sent = method.send(state, ids)
        between = time.perf_counter()
        view = method.view(state, sent, batch)
        verdict, _ = method.defence(view, memory)
        method.update(state, sent, view, verdict)
        return between - began, time.perf_counter() - between

    return play


def measure(clients: int, weights: int) -> report.Row:
    """Return a row of the table: the best of a few steps, with all threads."""
    rows = torch.randn(clients, weights), torch.randn(clients, weights)
    play, guarded = (step(clients, weights, preset, rows) for preset in ("paper", "hardened"))
    times = 3 if clients * weights < 2e8 else 1
    with threads(ALL_THREADS):
        taken, hardened = zip(*((play(), guarded()) for _ in range(times)), strict=True)
        peak = matmul_peak()
    customise, rest = (min(times) for times in zip(*taken, strict=True))
    return {
        "N": clients,
        "D": weights,
        "customise, s": customise,
        "recover to detect, s": rest,
        "hardened, times the seconds": min(map(sum, hardened)) / min(map(sum, taken)),
        "share of the peak, %": 100 * 4 * clients**2 * weights / (customise + rest) / peak,
        "peak memory so far, GB": peak_memory(),
    }


def main() -> None:
    rows = []
    for size in SIZES:
        rows.append(measure(*size))
        report.progress(rows[-1])
    report.write("server", "FedCAP's server step", rows, str(ALL_THREADS))
