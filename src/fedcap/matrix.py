"""Matrices with a row per client and a column per weight, taken a block of columns at a time.

A block fits the processor's cache, and no step needs a copy of the whole matrix. Lengths and products are
summed over blocks in double precision.

Updates taken in blocks of columns that fit the cache: sorted coordinates, products, distances.

Products are summed in double precision, which holds products of single-precision numbers exactly: rows that
differ little are told apart, and a row of 1e30 does not overflow. On a CPU the work inside a
block is NumPy's: it sorts, compares and multiplies small matrices faster than PyTorch.

How far a number lies from the others', in units of their own spread, and what that says against a client.

A minority, however far out it lies, cannot move the median and the median absolute deviation (MAD) beyond
what they could be among the others. Nor can it move the shortest interval that holds a majority, which serves
better where all liars lie on one side: with four liars of ten there, the median is near the edge of the
others, and the MAD nearly their whole range. Where votes are given, clients who sent the same have one
between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedcap.errors import InputError
from fedcap.products import fast_products

Values = Tensor | ArrayLike
"""Numbers as users have them: a tensor, a NumPy array, or nested lists."""

BLOCK = 1 << 13
"""Columns that are compared at a time."""
NARROW = 1 << 11
"""Columns that are mixed, or measured, at a time."""
STRIPE = 256
"""Rows per stripe when rows are compared with each other: a stripe with itself and the rows after it."""

FEW_ROWS = 32
"""Rows that are folded, or compared with one other each, at a time."""


def to_tensor(values: Values) -> Tensor:
    """Return numbers as a tensor: a tensor as it is, anything else as a copy.

    A NumPy array keeps its type; lists become single precision, unless they hold whole numbers or flags.
    """
    if isinstance(values, Tensor):
        return values
    try:
        if isinstance(values, list | tuple) and any(isinstance(row, Tensor) for row in values):
            return torch.stack([to_tensor(row) for row in values])
        tensor = torch.from_numpy(np.array(values, order="C"))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "expected a tensor, a NumPy array, or lists of numbers with rows of one length"
            f" (got {type(values).__name__})"
        ) from None
    listed = not isinstance(values, np.ndarray)
    return tensor.to(torch.get_default_dtype()) if listed and tensor.is_floating_point() else tensor


def to_floats(values: Values) -> Tensor:
    """Return numbers as `to_tensor` does, whole ones as floats; a tensor is left as it is."""
    tensor = to_tensor(values)
    if isinstance(values, Tensor) or tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_default_dtype())


def column_blocks(columns: int | slice, width: int) -> Iterator[slice]:
    """Yield slices of `width` columns over the first `columns`, or over a range; the last may be narrower."""
    first, stop = (0, columns) if isinstance(columns, int) else (columns.start, columns.stop)
    for start in range(first, stop, width):
        yield slice(start, min(start + width, stop))


def finite_rows(matrix: Tensor) -> Tensor:
    """Return which rows are finite in every column, N flags."""
    finite = matrix.sum(dim=1).isfinite()
    if not bool(finite.all()):  # a bad row, or one so large that its sum overflows
        finite[~finite] = matrix[~finite].isfinite().all(dim=1)
    return finite


@fast_products()
def weighted_mean(matrix: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of the rows, D, by their weights, N, whose shares are taken in double precision."""
    shares = weights.to(matrix.device, torch.float64)
    return (shares / shares.sum()).to(matrix.dtype) @ matrix


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix, N×D, minus an origin (D, or a point for each row, N×D), subtracted when read."""

    matrix: Tensor
    origin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def only(self, mask: Tensor) -> Rows:
        """Return the rows for which the mask holds."""
        each = self.origin is not None and self.origin.ndim == 2
        return Rows(self.matrix[mask], self.origin[mask] if each else self.origin)  # type: ignore[index]

    def block(self, columns: slice, room: Tensor | None = None) -> Tensor:
        """Return some columns of the rows; what must be computed is put into `room`, if there is any."""
        part = self.matrix[:, columns]
        if self.origin is None:
            return part
        into = None if room is None else room[:, : part.shape[1]]
        return torch.sub(part, self.origin[..., columns], out=into)

    def columns(self, chosen: Tensor) -> Tensor:
        """Return the chosen columns of the rows, in the order in which they are named."""
        part = self.matrix.index_select(1, chosen)
        return part if self.origin is None else part.sub_(self.origin[..., chosen])

    def norms(self) -> Tensor:
        """Return the length of each row, N, in double precision."""
        squares = self.matrix.new_zeros(len(self), dtype=torch.float64)
        for columns in column_blocks(self.matrix.shape[1], NARROW):
            squares += torch.linalg.vector_norm(self.block(columns), dim=1).double().square()
        return squares.sqrt()


def folded(rows: Rows, norms: Tensor, width: int, seed: int) -> Tensor:
    """Return the rows at length 1, their columns added up to `width` of them, N×width; `norms` are theirs.

    This is a count sketch: each block of columns is shifted and each column has a sign, at random. Cosines
    between rows are kept, but for an error of about 1/√width, in a fraction of the time that comparing the
    rows themselves takes. Rows that are not wider than `width` are only brought to length 1.
    """
    matrix, origin = rows.matrix, rows.origin
    scales = (1 / norms.clamp_min(torch.finfo(matrix.dtype).tiny)).to(matrix)[:, None]
    if matrix.shape[1] <= width:
        return rows.block(slice(None)) * scales
    sums = _sums(matrix, width, seed)
    if origin is not None:
        sums -= _sums(origin.view(-1, matrix.shape[1]), width, seed)
    return sums * scales


def _sums(matrix: Tensor, width: int, seed: int) -> Tensor:
    """Return the signed and shifted columns added up, N×width, a stripe of rows at a time."""
    generator = torch.Generator().manual_seed(seed)
    sums = matrix.new_zeros(len(matrix), width)
    blocks = list(column_blocks(matrix.shape[1], width))
    signs = [
        torch.randint(0, 2, (c.stop - c.start,), generator=generator).mul_(2).sub_(1).to(matrix)
        for c in blocks
    ]
    shifts = torch.randint(0, width, (len(blocks),), generator=generator).tolist()
    for start in range(0, len(matrix), FEW_ROWS):
        into, stripe = sums[start : start + FEW_ROWS], matrix[start : start + FEW_ROWS]
        for columns, sign, shift in zip(blocks, signs, shifts, strict=True):
            part, first = stripe[:, columns], min(len(sign), width - shift)
            into[:, shift : shift + first].addcmul_(part[:, :first], sign[:first])
            into[:, : len(sign) - first].addcmul_(part[:, first:], sign[first:])
    return sums


@fast_products()
def cosines(left: Rows, right: Rows, columns: slice | None = None) -> Tensor:
    """Return the cosine of every row of `left` with every row of `right`, L×R.

    A row of zeros points nowhere: its cosine with anything is 0. `columns` limits the comparison.
    """
    matrix = right.matrix
    products = matrix.new_zeros((len(left), len(right)), dtype=torch.float64)
    squares_left = matrix.new_zeros(len(left), dtype=torch.float64)
    squares_right = matrix.new_zeros(len(right), dtype=torch.float64)
    width = min(BLOCK, matrix.shape[1])
    room = matrix.new_empty(len(right), width)  # new memory for each block would take longer than the block
    for block in column_blocks(columns or matrix.shape[1], BLOCK):
        theirs = right.block(block, room)
        squares_right += torch.linalg.vector_norm(theirs, dim=1).double().square()
        if left is right:  # the half below the diagonal mirrors the half above it
            for start in range(0, len(right), STRIPE):
                products[start : start + STRIPE, start:] += theirs[start : start + STRIPE] @ theirs[start:].T
        else:
            ours = left.block(block)
            squares_left += torch.linalg.vector_norm(ours, dim=1).double().square()
            products += ours @ theirs.T
    if left is right:
        squares_left, products = squares_right, products.triu() + products.triu(1).T
    lengths = (squares_left[:, None] * squares_right).sqrt()
    return torch.where(lengths > 0, products / lengths, 0.0).to(matrix.dtype)


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


SIGMA = 1.4826
"""The deviation of normal numbers is so many times their MAD, or half the width of their shortest half."""
FEW = 5.0
"""The shortest majority of few numbers is shorter than that of many; this makes up for it."""
THETA = 0.8


def deviations(values: Tensor, votes: Tensor, floor: float) -> Tensor:
    """Return (x − median) / max(σ, floor), N, with σ = 1.4826 · MAD, both over votes."""
    middle = weighted_median(values, votes)
    spread = SIGMA * weighted_median((values - middle).abs(), votes)
    return (values - middle) / spread.clamp_min(floor)


def shortest_majority(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the middle of the shortest interval that holds a majority of the values, and their spread.

        σ = 1.4826 · (1 + 5 / (n − 1)) · half the width

    This is the least median of squares (Rousseeuw, 1984) with its factor for few values. Of intervals that
    are equally short the lowest counts.
    """
    ascending, majority = values.sort().values, len(values) // 2 + 1
    low, high = ascending[: len(values) - majority + 1], ascending[majority - 1 :]
    at = int((high - low).argmin())
    few = 1 + FEW / max(len(values) - 1, 1)
    return (low[at] + high[at]) / 2, SIGMA * few * (high[at] - low[at]) / 2


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the smallest value at which half of the weight is reached; with halves even, the mean of two."""
    order = torch.argsort(values)
    reached = torch.cumsum(weights[order], dim=0)
    half = reached[-1] / 2
    at = int(torch.searchsorted(reached, half * (1 - 1e-12)))
    low = values[order[at]]
    even = math.isclose(float(reached[at]), float(half), rel_tol=1e-9) and at + 1 < len(values)
    return (low + values[order[at + 1]]) / 2 if even else low


def evidence(deviation: Tensor, usual: float) -> Tensor:
    """Return the logarithm of the evidence against a client, N, by how far out it is.

        log e = max(θ · (z − usual), −1),    θ = 0.8

    Honest clients differ from each other in every round alike, so deviations below the usual one speak for a
    client, though no single round speaks loudly for it. If nine rounds of ten are below usual − 1/θ, and the
    others no further beyond usual than an exponential number would be, E[e] < 1: the product of e over
    rounds is a fair game at best, and by Ville's inequality ever reaches 1/δ with a chance of at most δ.
    """
    return (THETA * (deviation - usual)).clamp_min(-1.0)
