"""Every aggregation rule compared with a simple NumPy version, and with Flower's function if it is installed.

All three get the same matrix in the same process, with one thread. The best of a few repetitions counts, in
processor time, which other programs on the machine change little. 30 % of the rows are malicious. The NumPy
versions follow the formulas directly.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import report
from benchmarks.work import threads
from fedcap import aggregators

SIZES = ((20, 156_810), (100, 1_000_000))
REPEATS = 50
PATIENCE = 3.0
"""The seconds after which a version is not repeated again."""

Version = Callable[[np.ndarray, int], np.ndarray]


def mean(x: np.ndarray, m: int) -> np.ndarray:
    return x.mean(axis=0)


def squared_distances(x: np.ndarray) -> np.ndarray:
    return np.stack([((x - row) ** 2).sum(axis=1) for row in x])


def krum_scores(x: np.ndarray, m: int) -> np.ndarray:
    return np.sort(squared_distances(x), axis=1)[:, 1 : len(x) - m - 1].sum(axis=1)


def krum(x: np.ndarray, m: int) -> np.ndarray:
    return x[np.argmin(krum_scores(x, m))]


def multi_krum(x: np.ndarray, m: int) -> np.ndarray:
    return x[np.argsort(krum_scores(x, m))[: len(x) - m]].mean(axis=0)


def median(x: np.ndarray, m: int) -> np.ndarray:
    return np.median(x, axis=0)


def trimmed_mean(x: np.ndarray, m: int) -> np.ndarray:
    cut = m // 2
    return np.sort(x, axis=0)[cut : len(x) - cut].mean(axis=0)


def geometric_median(x: np.ndarray, m: int) -> np.ndarray:
    z = x.mean(axis=0)
    for _ in range(100):
        closeness = 1 / np.maximum(np.linalg.norm(x - z, axis=1), 1e-6)
        last, z = z, closeness @ x / closeness.sum()
        if np.linalg.norm(z - last) <= 1e-6 * np.linalg.norm(z):
            break
    return z


def clustered(x: np.ndarray, m: int) -> np.ndarray:
    from sklearn.cluster import AgglomerativeClustering

    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    model = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    label = model.fit_predict(1 - unit @ unit.T)
    return x[label == np.bincount(label).argmax()].mean(axis=0)


def norm_clipping(x: np.ndarray, m: int) -> np.ndarray:
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return (x * np.minimum(1, np.median(lengths) / lengths)).mean(axis=0)


def centred_clipping(x: np.ndarray, m: int) -> np.ndarray:
    v = np.zeros_like(x[0])
    for _ in range(3):
        lengths = np.linalg.norm(x - v, axis=1, keepdims=True)
        v = v + ((x - v) * np.minimum(1, np.median(lengths) / lengths)).mean(axis=0)
    return v


def dnc(x: np.ndarray, m: int) -> np.ndarray:
    sample = x[:, np.random.default_rng(0).permutation(x.shape[1])[:10_000]]
    centred = sample - sample.mean(axis=0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return x[np.argsort((centred @ direction) ** 2)[: len(x) - m]].mean(axis=0)


def bucketing(x: np.ndarray, m: int) -> np.ndarray:
    order = np.random.default_rng(0).permutation(len(x))
    return np.median(x[order].reshape(-1, 2, x.shape[1]).mean(axis=1), axis=0)


def gas(x: np.ndarray, m: int) -> np.ndarray:
    scores = np.zeros(len(x))
    for part in np.array_split(x, 1000, axis=1):
        scores += np.linalg.norm(part - np.median(part, axis=0), axis=1)
    return x[np.argsort(scores)[: len(x) - m]].mean(axis=0)


NUMPY: dict[str, Version] = {
    "mean": mean,
    "krum": krum,
    "multi-krum": multi_krum,
    "median": median,
    "geometric-median": geometric_median,
    "trimmed-mean": trimmed_mean,
    "clustered": clustered,
    "norm-clipping": norm_clipping,
    "centred-clipping": centred_clipping,
    "dnc": dnc,
    "bucketing": bucketing,
    "gas": gas,
}


def flower() -> dict[str, Version]:
    """Return Flower's functions for the rules it has; none if it is not installed."""
    try:
        from flwr.server.strategy import aggregate as theirs
    except ImportError:
        return {}

    def results(x: np.ndarray) -> list[tuple[list[np.ndarray], int]]:
        return [([row], 1) for row in x]

    return {
        "mean": lambda x, m: theirs.aggregate(results(x))[0],
        "krum": lambda x, m: theirs.aggregate_krum(results(x), m, 0)[0],
        "multi-krum": lambda x, m: theirs.aggregate_krum(results(x), m, len(x) - m)[0],
        "median": lambda x, m: theirs.aggregate_median(results(x))[0],
        "trimmed-mean": lambda x, m: theirs.aggregate_trimmed_avg(results(x), m // 2 / len(x))[0],
    }


def ours(name: str) -> Version:
    rule = aggregators.make(name)
    return lambda x, m: rule(torch.from_numpy(x), malicious=m).numpy()


def measure(versions: dict[str, Version], x: np.ndarray, m: int) -> dict[str, float]:
    """Return each version's best time in seconds of the processor, with one thread."""
    best = {}
    with threads(1):
        for who, version in versions.items():
            times: list[float] = []
            while len(times) < REPEATS and sum(times) < PATIENCE:
                began = time.process_time()
                version(x, m)
                times.append(time.process_time() - began)
            best[who] = min(times)
    return best


def matrix(rows: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    x += rng.standard_normal(width, dtype=np.float32)
    x[rng.permutation(rows)[: int(0.3 * rows)]] *= -2
    return x


def compare(name: str, x: np.ndarray) -> report.Row:
    """Return a row of the table: one rule on one matrix, in milliseconds of each version."""
    versions = {"fedcap": ours(name), "NumPy": NUMPY[name]}
    if name in (theirs := flower()):
        versions["Flower"] = theirs[name]
    took = measure(versions, x, int(0.3 * len(x)))
    rival = min(seconds for who, seconds in took.items() if who != "fedcap")
    return {
        "rule": name,
        "N": x.shape[0],
        "D": x.shape[1],
        **{f"{who}, ms": 1000 * took[who] if who in took else None for who in ("fedcap", "NumPy", "Flower")},
        "times as fast as the faster of the others": rival / took["fedcap"],
    }


def main() -> None:
    rows = []
    for size in SIZES:
        x = matrix(*size)
        for name in NUMPY:
            rows.append(compare(name, x))
            report.progress(rows[-1])
    version = importlib.metadata.version("flwr") if flower() else "not installed"
    about = (
        f"Milliseconds of processor time, best of up to {REPEATS}. NumPy {np.__version__}, Flower {version}."
    )
    report.write("rules", "Aggregation rules", rows, "one", about)
