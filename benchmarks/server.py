"""The server's step (customise, recover, calibrate, detect) beside the matrix-product peak, as N and D grow.

Two matrix products are unavoidable: all similarities, and mixing. They count as 4 N² D operations, though the
similarities below the diagonal are those above it and are not computed twice.
"""

from __future__ import annotations

import time

import torch

from benchmarks import report
from benchmarks.work import matmul_peak, peak_memory
from fedcap.methods import make
from fedcap.methods.base import Uploads
from fedcap.methods.fedcap import FedCAPState

SIZES = (
    (20, 156_810),
    (100, 156_810),
    (300, 156_810),
    (1000, 156_810),
    (100, 1_000_000),
    (1000, 1_000_000),
)


def main() -> None:
    rows = []
    for clients, weights in SIZES:
        method = make("fedcap", t_norm=1e9)
        ids = torch.arange(clients)
        counts = torch.ones(clients, dtype=torch.float64)
        models = torch.randn(clients, weights)
        state = FedCAPState(torch.zeros(weights), ids, models, models[:0], counts, torch.tensor([0, weights]))
        uploads = Uploads(ids, torch.randn(clients, weights), counts)
        repeats = 3 if clients * weights < 2e8 else 1
        best = [float("inf")] * 2
        for _ in range(repeats):
            began = time.perf_counter()
            dispatch = method.dispatch(state, ids, {})
            between = time.perf_counter()
            method.aggregate(state, dispatch, uploads)
            best = [min(best[0], between - began), min(best[1], time.perf_counter() - between)]
            del dispatch
        achieved = 4 * clients**2 * weights / sum(best)
        rows.append(
            {
                "N": clients,
                "D": weights,
                "customise, s": best[0],
                "recover to detect, s": best[1],
                "share of the peak, %": 100 * achieved / matmul_peak(),
                "peak memory so far, GB": peak_memory(),
            }
        )
        report.progress(rows[-1])
        del state, uploads, models
    report.write("server", f"FedCAP's server step, {torch.get_num_threads()} threads", rows)
