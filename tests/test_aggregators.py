"""Every rule against an independent computation, in every precision, and its symmetries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.stats import trim_mean

from fedcap import aggregators, matrix
from fedcap.aggregators import base
from fedcap.aggregators.dnc import outlier_scores
from fedcap.aggregators.norm_clipping import clipping_factors

ROBUST = [name for name in aggregators.names() if name != "mean"]
MATRICES = 200
Oracle = Callable[[np.ndarray, int], np.ndarray]


def random_matrix(seed: int) -> tuple[np.ndarray, int]:
    """Return N×D numbers of any scale, and an M that every rule can take."""
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(5, 15)), int(rng.integers(3, 40))
    scale, offset = 10.0 ** rng.integers(-3, 4), rng.normal(size=width) * rng.integers(0, 3)
    return scale * (rng.normal(size=(rows, width)) + offset), int(rng.integers(0, (rows - 3) // 2 + 1))


# --- Against NumPy, SciPy and scikit-learn


def scores_by_hand(matrix: np.ndarray, malicious: int) -> list[float]:
    scores = []
    for i, row in enumerate(matrix):
        squares = sorted(((row - other) ** 2).sum() for j, other in enumerate(matrix) if j != i)
        scores.append(sum(squares[: len(matrix) - malicious - 2]))
    return scores


def test_the_mean_weighs_by_sample_counts():
    rng = np.random.default_rng(0)
    for _ in range(MATRICES):
        matrix, weights = rng.normal(size=(7, 5)), rng.random(7) * 100
        found = aggregators.make("mean")(torch.from_numpy(matrix), torch.from_numpy(weights))
        np.testing.assert_allclose(found, np.average(matrix, axis=0, weights=weights), rtol=1e-12)
        found = aggregators.make("mean")(torch.from_numpy(matrix))
        np.testing.assert_allclose(found, matrix.mean(axis=0), rtol=1e-12, atol=1e-15)


def larger_cluster(x: np.ndarray, malicious: int) -> np.ndarray:
    """Return the mean of the larger cluster of complete linkage by cosine."""
    cluster = fcluster(linkage(x, "complete", "cosine"), 2, "maxclust")
    lengths = np.linalg.norm(x, axis=1)
    sides = [cluster == 1, cluster == 2]
    return x[max(sides, key=lambda side: (side.sum(), -lengths[side].mean()))].mean(axis=0)


def clipped(threshold: float | None, rounds: int, centred: bool) -> Oracle:
    """Return the mean of rows that are shortened, or three steps of centred clipping from the origin."""

    def oracle(x: np.ndarray, malicious: int) -> np.ndarray:
        centre = np.zeros(x.shape[1])
        for _ in range(rounds):
            lengths = np.linalg.norm(x - centre, axis=1, keepdims=True)
            limit = np.median(lengths) if threshold is None else threshold
            step = ((x - centre) * np.minimum(1, limit / lengths)).mean(axis=0)
            centre = centre + step if centred else step
        return centre

    return oracle


def without_outliers(x: np.ndarray, malicious: int) -> np.ndarray:
    """Return the mean of the rows that stand out the least in the main direction."""
    centred = x - x.mean(axis=0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return x[np.argsort((centred @ direction) ** 2)[: len(x) - malicious]].mean(axis=0)


def near_the_inner_rule(inner: str) -> Oracle:
    """Return the mean of the rows nearest to the inner rule over four parts of the columns."""
    rule = aggregators.make(inner)

    def oracle(x: np.ndarray, malicious: int) -> np.ndarray:
        scores = np.zeros(len(x))
        for part in np.array_split(x, min(4, x.shape[1]), axis=1):
            aggregate = rule(torch.from_numpy(part.copy()), malicious=malicious).numpy()
            scores += cdist(part, aggregate[None])[:, 0]
        return x[np.argsort(scores)[: len(x) - malicious]].mean(axis=0)

    return oracle


@pytest.mark.parametrize(
    ("name", "options", "oracle"),
    [
        ("krum", {}, lambda x, m: x[np.argmin(scores_by_hand(x, m))]),
        ("multi-krum", {}, lambda x, m: x[np.argsort(scores_by_hand(x, m))[: len(x) - m]].mean(axis=0)),
        ("median", {}, lambda x, m: np.median(x, axis=0)),
        ("trimmed-mean", {}, lambda x, m: trim_mean(x, (m // 2 + 0.5) / len(x), axis=0)),
        ("trimmed-mean", {"cut": "all"}, lambda x, m: trim_mean(x, (m + 0.5) / len(x), axis=0)),
        ("clustered", {}, larger_cluster),
        *(("norm-clipping", {"threshold": size}, clipped(size, 1, False)) for size in (None, 2.5, 0.1)),
        *(("centred-clipping", {"threshold": size}, clipped(size, 3, True)) for size in (None, 2.5, 0.1)),
        ("dnc", {}, without_outliers),
        *(("gas", {"rule": inner, "chunks": 4}, near_the_inner_rule(inner)) for inner in ("median", "krum")),
    ],
)
def test_a_rule_agrees_with_its_oracle(name: str, options: dict[str, object], oracle: Oracle):
    rule = aggregators.make(name, **options)
    for seed in range(MATRICES):
        rows, malicious = random_matrix(seed)
        found = rule(torch.from_numpy(rows), malicious=malicious).numpy()
        np.testing.assert_allclose(found, oracle(rows, malicious), rtol=1e-9, atol=1e-9 * np.abs(rows).max())


def test_geometric_median_has_the_smallest_sum_of_distances():
    rule = aggregators.make("geometric-median")
    for seed in range(MATRICES):
        matrix, _ = random_matrix(seed)
        matrix = matrix[:, :4]
        found = rule(torch.from_numpy(matrix)).numpy()

        def total(point: np.ndarray, matrix: np.ndarray = matrix) -> float:
            return float(np.linalg.norm(matrix - point, axis=1).sum())

        searched = minimize(total, np.median(matrix, axis=0), method="BFGS", options={"gtol": 1e-10})
        assert total(found) <= min(searched.fun, *(total(row) for row in matrix)) * (1 + 1e-6)


def test_clipping_factors_of_double_lengths_are_numpys_to_the_last_bit():
    lengths = np.random.default_rng(0).random(1000)
    found = clipping_factors(torch.from_numpy(lengths), 0.1)
    assert np.array_equal(found.numpy(), np.minimum(1, 0.1 / lengths))


def test_dnc_keeps_what_no_iteration_drops_and_samples_columns():
    matrix = torch.from_numpy(np.random.default_rng(1).normal(size=(12, 30)))
    rule = aggregators.make("dnc", columns=5, iterations=4, seed=3)
    chance = base.generator_for(3, matrix)
    dropped = set()
    for _ in range(4):
        sample = torch.randperm(30, generator=chance)[:5]
        dropped |= set(outlier_scores(matrix[:, sample]).argsort()[-2:].tolist())
    kept = [row for row in range(12) if row not in dropped]
    assert 2 < len(dropped) < 12
    torch.testing.assert_close(rule(matrix, malicious=2), matrix[kept].mean(dim=0))
    all_dropped = aggregators.make("dnc", columns=2, iterations=40)
    assert all_dropped(matrix, malicious=6).isfinite().all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bucketing_is_the_inner_rule_on_the_averages_of_its_buckets(size: int):
    def oracle(x: np.ndarray, malicious: int) -> np.ndarray:
        order = torch.randperm(len(x), generator=base.generator_for(5, torch.from_numpy(x))).numpy()
        buckets = [x[order[start : start + size]].mean(axis=0) for start in range(0, len(x), size)]
        return np.median(buckets, axis=0)

    rule = aggregators.make("bucketing", rule="median", size=size, seed=5)
    for seed in range(50):
        matrix, _ = random_matrix(seed)
        found = rule(torch.from_numpy(matrix)).numpy()
        np.testing.assert_allclose(found, oracle(matrix, 0), rtol=1e-9, atol=1e-9)


def test_the_buckets_change_with_the_round_and_with_the_seed_but_not_by_themselves():
    rule = aggregators.make("bucketing", rule="median")
    rounds = [torch.randn(20, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(10)]
    orders = {tuple(torch.randperm(20, generator=base.generator_for(0, rows)).tolist()) for rows in rounds}
    assert len(orders) == 10
    assert torch.equal(rule(rounds[0]), rule(rounds[0].clone()))
    assert not torch.equal(rule(rounds[0]), aggregators.make("bucketing", rule="median", seed=1)(rounds[0]))


def test_wrappers_compose_by_name_and_by_table():
    rows = torch.randn(20, 50)
    nested = aggregators.make("gas", chunks=5, rule={"name": "bucketing", "rule": "rfa", "size": 2})
    assert nested(rows, malicious=4).isfinite().all()
    assert aggregators.make("bucketing", rule="M-Krum").inner == aggregators.make("multi-krum")


# --- Numbers in single precision, many columns


@pytest.mark.parametrize("name", [name for name in ROBUST if name not in ("bucketing", "dnc")])
def test_single_precision_gives_what_double_gives_over_many_blocks_of_columns(name: str):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 3 * matrix.CACHED // 20 + 7, generator=generator, dtype=torch.float64)
    rows = (100 + rows).float()  # an offset that single-precision products would drown in
    rule = aggregators.make(name, **({"chunks": 7} if name == "gas" else {}))
    found = rule(rows, malicious=6)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), rule(rows.double(), malicious=6), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_aggregated_in_single_and_returned_as_it_came(name: str, dtype: torch.dtype):
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    rule = aggregators.make(name)
    assert torch.equal(rule(rows, malicious=2), rule(rows.float(), malicious=2).to(dtype))


# --- Symmetries

MATRIX = st.integers(0, 10_000).map(random_matrix)
FREE_OF_ORIGIN = sorted(set(ROBUST) - {"norm-clipping", "centred-clipping", "clustered", "bucketing", "dnc"})


def close(one: torch.Tensor, two: torch.Tensor, scale: float) -> None:
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("name", [name for name in ROBUST if name != "bucketing"])
@settings(max_examples=25, deadline=None)
@given(case=MATRIX, seed=st.integers(0, 100))
def test_the_order_of_clients_does_not_matter(name: str, case: tuple[np.ndarray, int], seed: int):
    rows, malicious = torch.from_numpy(case[0]), case[1]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(rows)))
    rule = aggregators.make(name)
    close(rule(rows[order], malicious=malicious), rule(rows, malicious=malicious), float(rows.abs().max()))


@pytest.mark.parametrize("name", FREE_OF_ORIGIN)
@settings(max_examples=25, deadline=None)
@given(case=MATRIX, size=st.floats(-10, 10))
def test_moving_all_rows_moves_the_aggregate(name: str, case: tuple[np.ndarray, int], size: float):
    rows, malicious = torch.from_numpy(case[0]), case[1]
    scale = float(rows.abs().max())
    shift = size * scale * torch.linspace(-1, 1, rows.shape[1], dtype=torch.float64)
    rule = aggregators.make(name)
    close(rule(rows + shift, malicious=malicious), rule(rows, malicious=malicious) + shift, 10 * scale)


@pytest.mark.parametrize("name", [name for name in ROBUST if name not in ("bucketing", "dnc")])
@settings(max_examples=25, deadline=None)
@given(case=MATRIX, power=st.integers(-20, 20))
def test_scaling_all_rows_scales_the_aggregate(name: str, case: tuple[np.ndarray, int], power: int):
    rows, malicious = torch.from_numpy(case[0]), case[1]
    rule, factor = aggregators.make(name), 2.0**power
    scale = factor * float(rows.abs().max())
    close(rule(factor * rows, malicious=malicious), factor * rule(rows, malicious=malicious), scale)


@pytest.mark.parametrize("name", ROBUST)
def test_equal_rows_are_their_own_aggregate(name: str):
    row = torch.linspace(-1, 1, 9)
    torch.testing.assert_close(aggregators.make(name)(row.repeat(8, 1), malicious=2), row)
    assert torch.equal(aggregators.make(name)(torch.zeros(8, 9), malicious=2), torch.zeros(9))


@pytest.mark.parametrize("name", ROBUST)
def test_claimed_sample_counts_buy_no_votes(name: str):
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(2))
    rule = aggregators.make(name)
    claims = torch.tensor([1e6, *[1.0] * 8])
    assert torch.equal(rule(rows, claims, 2), rule(rows, malicious=2))


@pytest.mark.parametrize("name", aggregators.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rows_are_left_as_they_were(name: str, dtype: torch.dtype):
    rows = torch.randn(9, 5, dtype=dtype)
    before = rows.clone()
    found = aggregators.make(name)(rows, malicious=2)
    found.zero_()
    assert torch.equal(rows, before)
