"""Updates taken in blocks of columns that fit the cache: sorted coordinates, products, distances.

Products are summed in double precision, which holds products of single-precision numbers exactly: rows that
differ little are told apart, and a row of 1e30 does not overflow. On a CPU the work inside a
block is NumPy's: it sorts, compares and multiplies small matrices faster than PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedcap.matrices import column_blocks

CACHED = 1 << 18
"""Numbers in a block: a megabyte in single precision."""
NETWORK_UP_TO = 32
"""With at most so many rows, comparing whole rows pair by pair is faster than sorting every coordinate."""


def blocks(rows: Tensor) -> Iterator[slice]:
    """Yield the columns of each block, as many as fit the cache with so many rows."""
    return column_blocks(rows.shape[1], max(1, CACHED // max(1, len(rows))))


def order_statistics(block: Tensor) -> Tensor:
    """Return a block N×B with the values of each coordinate in ascending order."""
    if block.device.type != "cpu":
        return block.sort(dim=0).values
    if len(block) > NETWORK_UP_TO:
        values = block.T.contiguous()
        values.numpy().sort(axis=1)
        return values.T
    rows = list(block.numpy().copy())
    spare = np.empty_like(rows[0])
    for low, high in comparators(len(rows)):
        first, second = rows[low], rows[high]
        np.minimum(first, second, out=spare)
        np.maximum(first, second, out=second)
        rows[low], spare = spare, first
    return torch.from_numpy(np.stack(rows))


@cache
def comparators(count: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs to compare, in order, that sort so many values: Batcher's merge exchange.

    Knuth, "The Art of Computer Programming", volume 3, section 5.2.2, algorithm M.
    """
    pairs: list[tuple[int, int]] = []
    top = 1 << max(0, (count - 1).bit_length() - 1)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(count - d) if i & p == r]
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2
    return tuple(pairs)


def products(rows: Tensor, exact: bool = True) -> Tensor:
    """Return the products of all rows with each other, N×N, in double precision.

    If they need not be exact, those within a block are summed in the precision of the rows.
    """
    if rows.device.type == "cpu":
        array = rows.numpy()
        found = np.zeros((len(rows), len(rows)))
        wide = np.empty((len(rows), 0))
        for block in blocks(rows):
            part = array[:, block]
            if exact:
                if part.shape != wide.shape:
                    wide = np.empty(part.shape)
                wide[:] = part
                part = wide
            with np.errstate(over="ignore", invalid="ignore"):  # inf tells the caller to ask for exact ones
                found += part @ part.T  # NumPy sees that the product is symmetric and computes half of it
        return torch.from_numpy(found)
    total = rows.new_zeros((len(rows), len(rows)), dtype=torch.float64)
    for block in blocks(rows):
        columns = rows[:, block].double()
        total.addmm_(columns, columns.T)
    return total


def squared_distances(rows: Tensor) -> Tensor:
    """Return the squared distances between all rows, N×N, in double precision."""
    found = products(rows)
    squares = found.diagonal().clone()
    return (squares[:, None] + squares - 2 * found).fill_diagonal_(0).clamp_min_(0)


def distances_to(rows: Tensor, point: Tensor | None = None) -> Tensor:
    """Return each row's distance to a point, or to the origin, N, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for block in blocks(rows):
        part = rows[:, block] if point is None else rows[:, block] - point[block]
        total += torch.linalg.vector_norm(part, dim=1).double().square_()
    if rows.dtype != torch.float64 and not bool(total.isfinite().all()):  # a row's squares overflow
        return distances_to(rows.double(), point)
    return total.sqrt_()


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the rows' sum with the given weights, D."""
    return weights.to(rows) @ rows


def mean_of(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the mean of the rows that are kept, D; `kept` holds their indices."""
    weights = rows.new_zeros(len(rows))
    weights[kept] = 1 / len(kept)
    return weighted_sum(weights, rows)
