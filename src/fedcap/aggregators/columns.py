"""Updates taken in blocks of columns that fit the cache: sorted coordinates, products, distances.

Products and distances are summed in double precision. It holds products of single-precision numbers
exactly, so nothing is lost by cancellation when rows differ little, or to overflow when one is 1e30.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

CACHED = 1 << 17
"""Numbers in a block: half a megabyte in single precision."""


def blocks(rows: Tensor) -> Iterator[slice]:
    """Yield the columns of each block."""
    width = max(1, CACHED // max(1, len(rows)))
    for start in range(0, rows.shape[1], width):
        yield slice(start, start + width)


def sorted_coordinates(block: Tensor) -> Tensor:
    """Return a block N×B as B×N, every coordinate's N values in ascending order."""
    values = block.T.contiguous()
    if values.device.type == "cpu":
        array = values.numpy()  # NumPy sorts short rows many times faster than PyTorch
        array.sort(axis=1)
        return values
    return values.sort(dim=1).values


def products(rows: Tensor) -> Tensor:
    """Return the products of all rows with each other, N×N, in double precision."""
    if rows.device.type == "cpu":
        array = rows.numpy()
        found = np.zeros((len(rows), len(rows)))
        for block in blocks(rows):
            part = array[:, block].astype(np.float64)
            found += part @ part.T  # NumPy sees that the product is symmetric and computes half of it
        return torch.from_numpy(found)
    total = rows.new_zeros((len(rows), len(rows)), dtype=torch.float64)
    for block in blocks(rows):
        exact = rows[:, block].double()
        total.addmm_(exact, exact.T)
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
        part = rows[:, block].to(torch.float64, copy=True)
        if point is not None:
            part -= point[block]
        total += torch.linalg.vector_norm(part, dim=1).square()
    return total.sqrt_()


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the rows' sum with the given weights, D."""
    return weights.to(rows) @ rows


def mean_of(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the mean of the rows that are kept, D; `kept` holds their indices."""
    weights = rows.new_zeros(len(rows))
    weights[kept] = 1 / len(kept)
    return weighted_sum(weights, rows)
